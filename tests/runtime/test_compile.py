"""The compiler's cache, its errors, and the agreement of NVRTC, nvcc and ptxas."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from time import sleep

import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import BuildError, CompileError
from spmark.impls.core.files import cache_folder
from spmark.impls.runtime import compile as compiler
from spmark.impls.runtime.compile import OPTIONS, begin, compile_kernel, compile_many, drop, kept_binary, kept_source
from spmark.impls.runtime.toolchain import INCLUDE, cuda_include, tool

pytestmark = needs_compilers
SOURCE = """#include "scale.cuh"
template <int threads> __global__ void __launch_bounds__(threads) scale(float* x) { x[threadIdx.x] *= kScale; }
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "inner.cuh").write_text("constexpr float kScale = 2.0f;\n")
    (tmp_path / "scale.cuh").write_text('#pragma once\n#include "inner.cuh"\n')
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    return path


def count_compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    real = compiler._compile_nvrtc

    def counted(source: Path, expression: str, arch: str) -> compiler.Binary:
        calls.append(expression)
        return real(source, expression, arch)

    monkeypatch.setattr(compiler, "_compile_nvrtc", counted)
    return calls


def test_a_second_compile_comes_from_the_cache(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_compiles(monkeypatch)
    first = compile_kernel(source, "scale<64>", "sm_90")
    assert compile_kernel(source, "scale<64>", "sm_90") == first
    assert calls == ["scale<64>"]
    assert first.cubin[:4] == b"\x7fELF"
    assert "scale" in first.symbol


@pytest.mark.parametrize("changed", ["scale.cu", "scale.cuh", "inner.cuh"])
def test_a_change_of_the_source_or_any_header_compiles_again(
    source: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    calls = count_compiles(monkeypatch)
    compile_kernel(source, "scale<64>", "sm_90")
    path = source.parent / changed
    path.write_text(path.read_text() + "// changed\n")
    compile_kernel(source, "scale<64>", "sm_90")
    assert len(calls) == 2


def test_architecture_options_instance_and_version_are_in_the_key(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_compiles(monkeypatch)
    compile_kernel(source, "scale<64>", "sm_90")
    compile_kernel(source, "scale<64>", "sm_80")
    compile_kernel(source, "scale<32>", "sm_90")
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "-DOTHER"))
    compile_kernel(source, "scale<64>", "sm_90")
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: "nvrtc 99.0")
    compile_kernel(source, "scale<64>", "sm_90")
    assert len(calls) == 5


def test_a_damaged_cache_entry_is_made_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_kernel(source, "scale<64>", "sm_90")
    (entry,) = (p for p in cache_folder().rglob("*") if p.is_file())
    entry.write_bytes(entry.read_bytes()[:-7])
    calls = count_compiles(monkeypatch)
    assert compile_kernel(source, "scale<64>", "sm_90") == first
    assert calls == ["scale<64>"]


@pytest.mark.parametrize("key", ["../x", "/elsewhere/x", "ab/cd", "", "AB", "a" * 10 + "\0"])
def test_a_key_is_no_path(key: str) -> None:
    with pytest.raises(BuildError, match="expected the key of a compiled kernel in hexadecimal digits, found"):
        kept_binary(key)


def test_a_cache_that_cannot_be_written_costs_only_time(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", "/dev/null/nowhere")
    assert compile_kernel(source, "scale<64>", "sm_90").registers > 0


def test_a_failure_names_file_instance_and_carries_the_log(source: Path) -> None:
    source.write_text(SOURCE.replace("kScale", "kMissing"))
    with pytest.raises(CompileError) as caught:
        compile_kernel(source, "scale<64>", "sm_90")
    assert caught.value.source == str(source)
    assert caught.value.instance == "scale<64>"
    assert 'identifier "kMissing" is undefined' in caught.value.log
    assert str(source) in str(caught.value)


def test_many_kernels_come_in_order_with_failures_apart(source: Path) -> None:
    jobs = [(source, f"scale<{threads}>", "sm_90") for threads in (32, 64, 96)] + [(source, "missing<1>", "sm_90")]
    *good, bad = compile_many(jobs, workers=2)
    assert [re.search(r"ILi(\d+)E", b.symbol)[1] for b in good] == ["32", "64", "96"]
    assert isinstance(bad, CompileError)
    assert bad.instance == "missing<1>"


def test_many_kernels_are_compiled_at_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Barrier(2)
    monkeypatch.setattr(compiler, "compile_kernel", lambda *_: both.wait(timeout=20))
    assert sorted(compile_many([(source, "scale<32>", "sm_90")] * 2, workers=2)) == [0, 1]  # type: ignore[type-var]


def test_no_thread_compiles_while_another_loads_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy_backends.cuda import libs

    class Nvrtc:
        """Loads as cuda-pathfinder does: who finds the library loaded does not wait for its built-in functions."""

        begun = False
        whole = Event()

        def getVersion(self) -> tuple[int, int]:
            if not self.begun:
                self.begun = True
                sleep(0.2)
                self.whole.set()
            return 13, 0

    monkeypatch.setattr(libs, "nvrtc", Nvrtc())
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: compiler._nvrtc().whole.is_set(), range(4)))
    assert loaded == [True] * 4


def test_a_kernel_that_was_begun_is_compiled_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_compiles(monkeypatch)
    begin([(source, f"scale<{threads}>", "sm_90") for threads in (32, 64, 32)])
    taken = [compile_kernel(source, f"scale<{threads}>", "sm_90") for threads in (64, 32)]
    assert ["ILi64E" in one.symbol for one in taken] == [True, False]
    assert sorted(calls) == ["scale<32>", "scale<64>"]


def test_who_asks_compiles_what_still_waits_for_a_thread(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, threads = Event(), ThreadPoolExecutor(1)
    threads.submit(go_on.wait)
    monkeypatch.setattr(compiler, "_threads", lambda: threads)
    calls = count_compiles(monkeypatch)
    begin([(source, f"scale<{threads}>", "sm_90") for threads in (32, 64)])
    compile_kernel(source, "scale<64>", "sm_90")
    drop([(source, "scale<96>", "sm_90")])
    assert list(compiler._COMING) == [(source, "scale<32>", "sm_90")], "others stay"
    drop()
    go_on.set()
    threads.shutdown()
    assert calls == ["scale<64>"], "what is dropped is not compiled"
    compile_kernel(source, "scale<32>", "sm_90")
    assert calls == ["scale<64>", "scale<32>"]


def test_the_error_of_a_kernel_that_was_begun_is_raised_where_it_is_asked_for(source: Path) -> None:
    begin([(source, "missing<1>", "sm_90")])
    with pytest.raises(CompileError, match="missing"):
        compile_kernel(source, "missing<1>", "sm_90")


def test_nvcc_and_nvrtc_agree_on_the_kernel(source: Path, tmp_path: Path) -> None:
    unit = tmp_path / "unit.cu"
    unit.write_text(f'#include "{source}"\ntemplate __global__ decltype(scale<64>) scale<64>;\n')
    command = [
        tool("nvcc"),
        *OPTIONS,
        "-arch=sm_90",
        "-cubin",
        "-Xptxas=-v",
        f"-I{cuda_include()}",
        f"-I{INCLUDE}",
        unit,
    ]
    said = subprocess.run([*command, "-o", tmp_path / "out.cubin"], capture_output=True, text=True, check=True).stderr
    ours = compile_kernel(source, "scale<64>", "sm_90")
    assert f"Compiling entry function '{ours.symbol}'" in said
    assert f"Used {ours.registers} registers" in said


@pytest.mark.parametrize("damage", ["", "__global__ void lo_spmm() {}"])
def test_a_damaged_source_is_written_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    path = kept_source("// what was generated", "lo_spmm")
    path.write_text(damage)
    assert kept_source("// what was generated", "lo_spmm") == path
    assert path.read_text() == "// what was generated"
    assert [file.name for file in (cache_folder() / "sources").iterdir()] == [path.name]
    assert re.fullmatch(r"lo_spmm_[0-9a-f]{24}\.cu", path.name)
