"""Compiling for the host: the cache's key, errors, and the rewriting of shared variables."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.runtime.host import ring
from spmark.impls.runtime.host.ring import compile_host, launch_host
from spmark.impls.runtime.toolchain import find_gcc, gcc_missing

SOURCE = (
    '#include "factor.cuh"\ntemplate <int n> __global__ void fill(float* out) { out[threadIdx.x] = n * kFactor; }\n'
)


@pytest.fixture(autouse=True)
def _unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile what users run."""
    monkeypatch.setattr(ring, "MORE_OPTIONS", ())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "factor.cuh").write_text("constexpr float kFactor = 0.5f;\n")
    (tmp_path / "fill.cu").write_text(SOURCE)
    return tmp_path / "fill.cu"


def fill(executable: Path, instance: str) -> float:
    out = np.zeros(4, np.float32)
    launch_host(executable, instance, (1, 1, 1), (4, 1, 1), 0, [out])
    assert (out == out[0]).all()
    return float(out[0])


def test_the_cache_knows_headers_and_instances(source, cache):
    first = compile_host(source, ["fill<3>"])
    written = first.stat().st_mtime_ns
    assert compile_host(source, ["fill<3>"]) == first
    assert first.stat().st_mtime_ns == written
    both = compile_host(source, ["fill<3>", "fill<5>"])
    assert both != first
    assert [fill(both, "fill<3>"), fill(both, "fill<5>")] == [1.5, 2.5]
    (source.parent / "factor.cuh").write_text("constexpr float kFactor = 0.25f;\n")
    changed = compile_host(source, ["fill<3>"])
    assert changed != first
    assert (fill(first, "fill<3>"), fill(changed, "fill<3>")) == (1.5, 0.75)
    assert not [path for path in cache.iterdir() if path.is_dir() or path.suffix == ".part"], (
        "nothing half-made is left"
    )


def test_who_asks_for_some_of_an_executables_instances_gets_it(source, cache):
    whole = compile_host(source, ["fill<7>", "fill<9>", "fill<11>"])
    written = whole.stat().st_mtime_ns
    assert compile_host(source, ["fill<9>"]) == whole
    assert compile_host(source, ["fill<11>", "fill<7>"]) == whole
    assert compile_host(source, ["fill<7>", "fill<1>"]) != whole
    (source.parent / "factor.cuh").write_text("constexpr float kFactor = 3.0f;\n")
    assert compile_host(source, ["fill<9>"]) != whole, "another header is another executable"
    (source.parent / "factor.cuh").write_text("constexpr float kFactor = 0.5f;\n")
    assert whole.stat().st_mtime_ns == written
    whole.unlink()
    again = compile_host(source, ["fill<9>"])
    assert fill(again, "fill<9>") == 4.5


@pytest.mark.full
def test_threads_and_processes_that_want_the_same_compile_it_once(source, cache, monkeypatch):
    compiled = []
    run = ring.run_gcc

    def counted(command, *args):
        if "-E" not in command:
            compiled.append(command)
            time.sleep(0.2)
        return run(command, *args)

    monkeypatch.setattr(ring, "run_gcc", counted)
    with ThreadPoolExecutor(3) as pool:
        asked = [["fill<21>"], ["fill<21>"], ["fill<21>"]]
        made = list(pool.map(lambda names: compile_host(source, names), asked))
    assert len(set(made)) == 1
    assert len(compiled) == 1
    holder = FileLock(next(cache.glob(f".{made[0].name.rsplit('-', 1)[0]}.lock")))
    script = (
        "from pathlib import Path\nfrom spmark.impls.runtime.host.ring import compile_host\n"
        f"print(compile_host(Path({str(source)!r}), ['fill<21>']))"
    )
    with holder:  # as another process that compiles
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=3)
    assert child.communicate(timeout=60)[0].strip() == str(made[0])


@pytest.mark.parametrize(
    ("text", "instance", "words"),
    [
        ("__global__ void broken(float* out) { out[0] = undeclared; }\n", "broken", "undeclared"),
        ("#include <nowhere.cuh>\n", "broken", "nowhere.cuh: No such file"),
        ('template <int n> __global__ void odd() { static_assert(n % 2 == 1, "n is odd"); }\n', "odd<2>", "n is odd"),
        ("__global__ void other() {}\n", "broken", "broken"),
        (
            "\n__global__ void two() { __shared__ int a[2], b[2]; }\n",
            "two",
            r"kernel\.cu:2: expected one shared variable",
        ),
    ],
)
def test_what_does_not_compile_carries_the_log(tmp_path, cache, text, instance, words):
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    with pytest.raises(CompileError, match=words) as caught:
        compile_host(path, [instance])
    assert caught.value.source == str(path)
    assert caught.value.instance == instance


def test_without_a_compiler_the_reason_is_said(source, cache, monkeypatch):
    for found in (ring._options, find_gcc):
        found.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(DeviceError, match=r"expected g\+\+ .* found none"):
        compile_host(source, ["fill<3>"])
    monkeypatch.undo()
    ring._options.cache_clear()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("#!/bin/sh\necho no licence >&2; exit 1\n", "exit status 1 and 'no licence': install the package"),
        ("#!/bin/sh\necho gone; exit 3\n", "exit status 3 and 'gone'"),
        ("#!/bin/sh\n", "the version '' of ''"),
        ("#!/bin/sh\necho hello\n", "the version 'hello' of 'hello'"),
        ("#!/bin/sh\nprintf '\\377'\n", ".*codec can't decode byte"),
        ("no program", ".*Exec format error"),
    ],
    ids=["fails", "fails-on-stdout", "silent", "no-version", "no-text", "no-program"],
)
def test_a_compiler_that_does_not_work_is_told_with_what_it_printed(tmp_path, monkeypatch, content, found):
    (tmp_path / "g++").write_text(content)
    (tmp_path / "g++").chmod(0o755)
    find_gcc.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match=rf"expected the g\+\+ at {tmp_path}/g\+\+ to work, .* found {found}"):
        find_gcc()
    assert "put another g++ before it on PATH" in str(gcc_missing())
