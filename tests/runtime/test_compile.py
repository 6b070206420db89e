"""The compiler's cache, its errors, and the agreement of NVRTC, nvcc and ptxas."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from time import sleep

import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import BuildError, CompileError, DeviceError
from spmark.impls.core.files import cache_folder
from spmark.impls.runtime import compile as compiler
from spmark.impls.runtime import compile_pool
from spmark.impls.runtime.compile import OPTIONS, compile_kernel, kept_binary, kept_source
from spmark.impls.runtime.compile_pool import compile_many
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


def test_a_pool_answers_in_order_and_keeps_failures_apart(source: Path) -> None:
    jobs = [(source, f"scale<{threads}>", "sm_90") for threads in (32, 64, 96)] + [(source, "missing<1>", "sm_90")]
    *good, bad = compile_many(jobs, workers=2)
    assert [re.search(r"ILi(\d+)E", b.symbol)[1] for b in good] == ["32", "64", "96"]
    assert isinstance(bad, CompileError)
    assert bad.instance == "missing<1>"


def test_a_pool_does_not_run_the_callers_main_module_again(source: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from spmark.impls.runtime.compile_pool import compile_many\n"
        "print('once')\n"
        f"jobs = [(Path({str(source)!r}), f'scale<{{t}}>', 'sm_90') for t in (32, 64)]\n"
        "print(len([b.registers for b in compile_many(jobs, 2)]))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["once", "2"], done.stderr


_NONSENSE = "print('ready', flush=True); input(); print('[', flush=True); input()"
_HALF_AN_ANSWER = "import os; print('ready', flush=True); input(); print('nul', end='', flush=True); os._exit(9)"


@pytest.mark.parametrize(
    ("program", "arch", "told"),
    [
        (_HALF_AN_ANSWER, "sm_86", "a process that compiles kernels ended: exit code 9"),
        (_NONSENSE, "sm_87", "cannot be used: "),
    ],
)
def test_a_pool_whose_process_gives_no_answer_says_so(
    program: str, arch: str, told: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_pool, "_COMMAND", (sys.executable, "-c", program))
    monkeypatch.setattr(compile_pool, "_WAITING", SimpleQueue())
    monkeypatch.setattr(compile_pool, "_compile", lambda job: sleep(0.3))
    with pytest.raises(DeviceError, match=told):
        compile_many([(source, f"scale<{each}>", arch) for each in range(224, 480, 32)], workers=2)


def test_a_pool_follows_a_cache_that_moves(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(source, f"scale<{each}>", "sm_90") for each in (32, 64)]
    for folder in (tmp_path / "one", tmp_path / "other"):
        monkeypatch.setenv("SPMARK_CACHE", str(folder))
        compile_many(jobs, workers=2)
        assert len([path for path in folder.rglob("*") if path.is_file()]) == 2


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
