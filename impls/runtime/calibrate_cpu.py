"""The rates of the host's cores: copy and read bandwidth and multiply-adds on all of them, by numba kernels."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.runtime.timing import Run

_SAMPLES, _SPENT_S = 7, 0.5
"""Fewest samples, and seconds that they take at least: a run of a millisecond is often disturbed as a whole."""
_ROUNDS = 200_000
_SUMS = 64


def calibrate_cpu(spec: DeviceSpec) -> DeviceSpec:
    """Measure the CPU's rates over arrays of four times its last-level cache (1 GB at most); a few seconds."""
    values = min(4 * spec.l2_bytes, 1 << 30, spec.memory_bytes // 16) // 4
    source, held = np.ones(values, np.float32), np.empty(values, np.float32)
    sums = np.zeros((spec.num_sms, _SUMS), np.float32)
    copy = _seconds(lambda: _copy(source, held))
    read = _seconds(lambda: _read(source))
    fma = _seconds(lambda: _multiply_add(sums, np.float32(0.5)))
    return spec.model_copy(
        update={
            "copy_bytes_per_s": 2 * source.nbytes / copy,
            "read_bytes_per_s": source.nbytes / read,
            "fma_flops_per_s": 2 * sums.size * _ROUNDS / fma,
            "calibrated_with": {"numba": numba.__version__, "on": f"{datetime.now(UTC):%Y-%m-%d}"},
        }
    )


def _seconds(run: Run) -> float:
    run()  # compiles
    times: list[float] = []
    begun = perf_counter()
    while len(times) < _SAMPLES or perf_counter() - begun < _SPENT_S:
        started = perf_counter()
        run()
        times.append(perf_counter() - started)
    # The best of a few: other work on the machine only ever makes a ceiling look lower.
    return min(times)


@numba.njit(parallel=True, fastmath=True, cache=False)  # type: ignore[untyped-decorator]
def _copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    for i in numba.prange(source.size):
        target[i] = source[i]


@numba.njit(parallel=True, fastmath=True, cache=False)  # type: ignore[untyped-decorator]
def _read(source: NDArray[Any]) -> np.float32:
    total = np.float32(0.0)
    for i in numba.prange(source.size):
        total += source[i]
    return total


@numba.njit(parallel=True, fastmath=True, cache=False)  # type: ignore[untyped-decorator]
def _multiply_add(sums: NDArray[Any], factor: np.float32) -> None:
    for core in numba.prange(sums.shape[0]):
        held = sums[core].copy()
        for _ in range(_ROUNDS):
            for s in range(held.size):
                held[s] = held[s] * factor + factor
        sums[core] = held
