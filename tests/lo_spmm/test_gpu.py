"""What candidates on a GPU need before they run, without one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import CompileError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.constraints import Survivors
from spmark.impls.lo_spmm.machine import Code, Emitter
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import config_of
from spmark.impls.runtime.device import shipped_calibration

gpu = pytest.importorskip("spmark.impls.lo_spmm.gpu", reason="CuPy is not installed", exc_type=ImportError)
SPEC = DeviceSpec.load(shipped_calibration("nvidia-h200"))
GROUPS = [[TileSize(8, 64), TileSize(8, 128), TileSize(8, 64, 1, 2)], [TileSize(16, 64), TileSize(16, 96)]]


CONFIGS = [config_of(size) for sizes in GROUPS for size in sizes]


def kernels_of(proxies: bool, emitter: Emitter = Emitter.CUDA) -> Any:
    problem = Problem(Op.SPMM, random_csr(64, 128, [12] * 64), 256)
    space = explore(problem, SPEC, Pins(split=1))
    space.survivors = Survivors(tuple(size for sizes in GROUPS for size in sizes), {})
    return gpu.Kernels(space, SimpleNamespace(spec=SPEC), emitter=emitter, warm=False, proxies=proxies)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Block sizes of the codes that were loaded; no code is on a device."""
    wanted: list[int] = []

    def make(kernel: Any, target: Any, emitter: Emitter, block_threads: int) -> Code:
        wanted.append(block_threads)
        loaded: Any = SimpleNamespace(allow_shared=int, launch=lambda *arguments: None)
        return Code(loaded, 0, 32)

    monkeypatch.setattr(gpu, "make_code", make)
    monkeypatch.setattr(Code, "kernel_at", lambda code, threads: code.kernel)
    return wanted


@pytest.mark.parametrize("proxies", [False, True])
def test_c_of_all_candidates_is_compiled_at_once(
    proxies: bool, made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    calls: list[list[tuple[Path, str, str]]] = []
    monkeypatch.setattr(gpu, "compile_many", lambda jobs: calls.append(list(jobs)))
    kernels = kernels_of(proxies)
    kernels.prepare(CONFIGS)
    (jobs,) = calls
    # A real kernel is compiled for every size of a thread block, a proxy for its largest; each has one text.
    assert len(jobs) == kernels.compiled == (2 if proxies else 4)
    assert len({source for source, _, _ in jobs}) == 2
    sizes = [source.stat().st_size for source, _, _ in jobs]
    assert sizes == sorted(sizes, reverse=True)
    assert {expression.split(",")[0] for _, expression, _ in jobs} == (
        {"lo_spmm<128", "lo_spmm<96"} if proxies else {"lo_spmm<64", "lo_spmm<128", "lo_spmm<96"}
    )
    # A kernel is loaded once for all of its candidates.
    for config in CONFIGS:
        plan = kernels.plan(config)
        plan.enqueue([None], None)
        # What a plan takes over where this candidate wins: the code, and as many tiles as M1 makes of 64 rows.
        assert plan.num_tiles == 64 // config["tile_rows"]
    assert made == ([128, 96] if proxies else [64, 128, 64, 96])


def test_ptx_of_all_candidates_is_assembled_side_by_side(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "is_assembled", lambda target, emitter: True)
    rows: list[int] = []

    def assemble(kernel: Any, arch: str, cap: int, workers: int) -> None:
        rows.append(kernel.tile_rows)
        raise CompileError("lo_spmm", "ptxas", "what fails says so when it is loaded")

    monkeypatch.setattr(gpu, "assemble", assemble)
    kernels = kernels_of(False, Emitter.PTX)
    kernels.prepare(CONFIGS)
    assert sorted(rows) == [8, 16]
    assert made == [128, 96], "one code serves every size of a block"
    assert kernels.compiled == 2


def test_what_cannot_be_made_is_made_once_and_told_by_each_of_its_candidates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    monkeypatch.setattr(gpu, "compile_many", lambda jobs: None)
    tried: list[int] = []

    def make(kernel: Any, *arguments: Any) -> Code:
        tried.append(kernel.tile_rows)
        raise CompileError("lo_spmm", "nvrtc", "out of luck")

    monkeypatch.setattr(gpu, "make_code", make)
    kernels = kernels_of(False)
    for config in (*CONFIGS[:2], *CONFIGS[:2]):
        with pytest.raises(CompileError, match="out of luck"):
            kernels.plan(config)
    assert tried == [8, 8], "C++ is compiled for each of the two sizes of a block"
