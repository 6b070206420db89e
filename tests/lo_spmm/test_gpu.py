"""What candidates on a GPU need before they run, without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.constraints import Survivors
from spmark.impls.lo_spmm.machine import Emitter
from spmark.impls.lo_spmm.reorder import Order
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.device import shipped_calibration

gpu = pytest.importorskip("spmark.impls.lo_spmm.gpu", reason="CuPy is not installed", exc_type=ImportError)
SPEC = DeviceSpec.load(shipped_calibration("nvidia-h200"))
GROUPS = [[TileSize(8, 64), TileSize(8, 128), TileSize(8, 64, 1, 2)], [TileSize(16, 64), TileSize(16, 96)]]


@pytest.fixture
def runner() -> Any:
    """A runner without the buffers that it has on a device."""
    problem = Problem(Op.SPMM, random_csr(64, 128, [12] * 64), 256)
    made = object.__new__(gpu.GpuRunner)
    made._space = explore(problem, SPEC, Order.GREEDY, Pins())
    made._space.survivors = Survivors(tuple(size for sizes in GROUPS for size in sizes), {})
    made._target, made._emitter = SimpleNamespace(spec=SPEC), Emitter.CUDA
    made._cpl, made._warm, made._kernels, made._tiles, made.compile_s = 0, False, {}, {}, 0.0
    made._reduction = None
    return made


@pytest.mark.parametrize("proxies", [False, True])
def test_c_of_all_groups_is_compiled_at_once(
    proxies: bool, runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    calls: list[list[tuple[Path, str, str]]] = []
    monkeypatch.setattr(gpu, "compile_many", lambda jobs, workers: calls.append(list(jobs)))
    runner.prepare(GROUPS, proxies)
    (jobs,) = calls
    # A real kernel is compiled for every size of a thread block, a proxy for its largest; each has one text.
    assert len(jobs) == runner.count_kernels(GROUPS, proxies) == (2 if proxies else 4)
    assert len({source for source, _, _ in jobs}) == 2
    sizes = [source.stat().st_size for source, _, _ in jobs]
    assert sizes == sorted(sizes, reverse=True)
    assert {expression.split(",")[0] for _, expression, _ in jobs} == (
        {"lo_spmm<128", "lo_spmm<96"} if proxies else {"lo_spmm<64", "lo_spmm<128", "lo_spmm<96"}
    )
    assert runner.compile_s > 0


def test_candidates_take_turns_in_another_order_every_round(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several kernels' candidates too; every time goes to the candidate that took it, and the first round to none."""
    rounds: list[list[int]] = []

    def batch(runs: Sequence[Callable[[], int]], count: int, cold: bool) -> NDArray[np.float64]:
        assert (count, cold) == (1, True)
        rounds.append([run() for run in runs])
        return np.array([[float(threads)] for threads in rounds[-1]])

    def add(sizes: Sequence[TileSize], proxies: bool, runs: dict[TileSize, Any], reasons: list[str]) -> None:
        assert len({size.tile_rows for size in sizes}) == 1
        runs |= {size: lambda size=size: size.block_threads for size in sizes}

    runner._stopwatch = SimpleNamespace(batch=batch)
    monkeypatch.setattr(runner, "_add_runs", add)
    monkeypatch.setattr(gpu, "cuda_faults", nullcontext)
    sizes = [TileSize(16, 32 * number) for number in range(1, 9)] + [TileSize(8, 32 * 9)]
    found = runner.samples_us(sizes, False, 6)
    assert found == {size: [float(size.block_threads)] * 6 for size in sizes}
    assert len(rounds) == 7
    assert len({tuple(one) for one in rounds}) == 7
    assert {tuple(sorted(one)) for one in rounds} == {tuple(range(32, 32 * 10, 32))}


def test_a_kernel_is_loaded_once_for_all_rounds(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[Sequence[int]] = []

    def make(kernel: Any, target: Any, emitter: Emitter, block_threads: Sequence[int]) -> Any:
        wanted.append(list(block_threads))
        return SimpleNamespace(kernels={threads: SimpleNamespace(allow_shared=int) for threads in block_threads})

    monkeypatch.setattr(gpu, "make_code", make)
    monkeypatch.setattr(gpu, "check_fits", lambda code, size, target: None)
    monkeypatch.setattr(gpu.GpuRunner, "_real", lambda self, code, size, kernel: None)
    monkeypatch.setattr(gpu.GpuRunner, "_proxy", lambda self, code, size, kernel: None)
    runner._codes = {}
    for proxies in (False, True):
        runs: dict[TileSize, Any] = {}
        runner._add_runs(GROUPS[0], proxies, runs, [])
        runner._add_runs(GROUPS[0][:1], proxies, runs, [])
        assert list(runs) == GROUPS[0]
    # In C++ a kernel is compiled for each size of a block, a proxy for the largest; the finals need no other.
    assert wanted == [[64, 128], [128]]
