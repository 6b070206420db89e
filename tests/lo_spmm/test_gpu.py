"""What candidates on a GPU need before they run, without one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Op, Problem
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
    made._target, made._emitter = SimpleNamespace(spec=SPEC), Emitter.CUDA
    made._cpl, made._warm, made._kernels, made._tiles, made.compile_s = 0, False, {}, {}, 0.0
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
