"""The rates of a GPU: bandwidths, multiply-adds, matrix units, launches, dependent loads, gathered rows.

Rates are medians over large data and warm caches; the launch and the chain of loads are timed with cold caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.runtime.cudalab import CudaStopwatch, launcher
from spmark.impls.runtime.device import versions
from spmark.impls.runtime.timing import Run, Stopwatch
from spmark.impls.runtime.withcupy import cupy

_THREADS, _UNROLL = 512, 4
_ROW_VECTORS = (4, 8, 16, 32, 64, 128)
_FLIGHT = 2
"""Rows that a group of lanes has in flight."""
_SAMPLES = 21
_ROUNDS = 4096
_LAUNCHES = 100
_LINKS = (8, 72)
"""Loads of two chains; their difference in time gives the time of a load, since the launch and first loads cancel."""
_GATHER_ROUNDS, _GATHER_BLOCKS_PER_SM = 64, 64
_L1_TABLE_BYTES = 64 << 10
"""Fits into the L1 of every architecture."""
_L2_OVER_TABLE = 4
"""The L2 over a table that fits: a quarter fits even where each half of the L2 keeps a copy of its own."""
_TABLES = (0.5, 1, 2, 4)
"""Sizes of tables over the size of the L2."""
_SUMS = {"multiply_add": 16, "matrix_multiply": 8}
"""Independent sums of the kernels."""
_MMA_FLOPS = 2 * 16 * 8 * 16


@dataclass(frozen=True)
class _Gauge:
    """Times runs and kernels on the GPU that is calibrated."""

    spec: DeviceSpec
    stopwatch: Stopwatch

    def seconds(self, run: Run, cold: bool = False) -> float:
        self.stopwatch.batch([run], 5, cold)
        return float(np.median(self.stopwatch.batch([run], _SAMPLES, cold))) * 1e-6

    def kernel(self, expression: str, blocks: int, *args: object) -> Run:
        """Load a kernel of `calibrate.cu`."""
        return partial(launcher("calibrate.cu", expression, self.spec.arch), blocks, *args)


def calibrate_cuda(spec: DeviceSpec) -> DeviceSpec:
    """Measure the GPU's rates, in at most a quarter of its memory and 4 GB a buffer."""
    gauge = _Gauge(spec, CudaStopwatch(spec))
    seconds, kernel = gauge.seconds, gauge.kernel

    values = min(1 << 30, spec.memory_bytes // 32)
    source, sink = cupy.ones(values, cupy.float32), cupy.empty(values, cupy.float32)
    count = np.int64(values // 4)
    waves = 8 * spec.num_sms
    # The copy engine (cudaMemcpy) and a kernel both copy: the faster one is the ceiling.
    copies = [
        seconds(lambda: sink.data.copy_from_device_async(source.data, source.nbytes)),
        seconds(kernel(f"copy_all<{_UNROLL}, {_THREADS}>", waves, count, source, sink)),
    ]
    read = seconds(kernel(f"read_all<{_UNROLL}, {_THREADS}>", waves, count, source, sink))

    grid = 4 * spec.num_sms
    threads = grid * _THREADS
    rounds, factor = np.int32(_ROUNDS), np.float32(0.5)
    fma = seconds(kernel(f"multiply_add<{_THREADS}>", grid, rounds, factor, sink))
    tensor = seconds(kernel(f"matrix_multiply<{_THREADS}>", grid, rounds, sink))
    empty = kernel("nothing<32>", 1)

    def many() -> None:
        for _ in range(_LAUNCHES):
            empty()

    launch = seconds(many) / _LAUNCHES

    driver, cuda = versions(spec)
    warps = threads // spec.warp_size
    return spec.model_copy(
        update={
            "copy_bytes_per_s": 2 * source.nbytes / min(copies),
            "read_bytes_per_s": source.nbytes / read,
            "fma_flops_per_s": 2 * threads * _ROUNDS * _SUMS["multiply_add"] / fma,
            "tensor_flops_per_s": {"float16": warps * _ROUNDS * _SUMS["matrix_multiply"] * _MMA_FLOPS / tensor},
            "launch_s": launch,
            "cold_launch_s": seconds(empty, cold=True),
            "cold_load_s": _cold_load_s(gauge),
            "calibrated_with": {"driver": driver, "cuda": cuda, "on": f"{datetime.now(UTC):%Y-%m-%d}"},
            **_gather_rates(gauge, source, sink),
        }
    )


def _cold_load_s(gauge: _Gauge) -> float:
    """Give the seconds of one load from memory for which the next load waits."""
    chain, last = cupy.asarray(chain_of(2 * gauge.spec.l2_bytes // 4, _LINKS[-1])), cupy.empty(1, np.int32)
    short, long = (
        gauge.seconds(gauge.kernel("follow_chain<32>", 1, np.int32(links), chain, last), cold=True) for links in _LINKS
    )
    return (long - short) / (_LINKS[1] - _LINKS[0])


def _gather_rates(gauge: _Gauge, source: Any, sink: Any) -> dict[str, dict[int, float]]:
    """Give the bytes a second of reading random rows, by field of `DeviceSpec`; tables are parts of ``source``."""
    blocks, l2_bytes = _GATHER_BLOCKS_PER_SM * gauge.spec.num_sms, gauge.spec.l2_bytes

    def rate(table_bytes: int, row_bytes: int) -> float:
        vectors, args = row_bytes // 16, (np.int32(_GATHER_ROUNDS), np.uint32(table_bytes // row_bytes), source, sink)
        rows = blocks * 256 // min(vectors, gauge.spec.warp_size) * _GATHER_ROUNDS * _FLIGHT
        return rows * row_bytes / gauge.seconds(gauge.kernel(f"gather_rows<{vectors}, {_FLIGHT}, 256>", blocks, *args))

    return {
        "l2_gather_bytes_per_s": {16 * row: rate(l2_bytes // _L2_OVER_TABLE, 16 * row) for row in _ROW_VECTORS},
        "l1_gather_bytes_per_s": {16 * row: rate(_L1_TABLE_BYTES, 16 * row) for row in _ROW_VECTORS},
        "table_gather_bytes_per_s": {int(part * l2_bytes): rate(int(part * l2_bytes), 512) for part in _TABLES},
    }


def chain_of(places: int, links: int) -> NDArray[np.int32]:
    """Give an array in which each place of a chain names the next place; the chain begins at 0.

    Parameters
    ----------
    places : int
        Length of the array, at least ``32 * (links + 1)``.
    links : int
        Loads of the chain.

    Returns
    -------
    (places,) ndarray of int32
        Each link lies in a line of 128 bytes of its own, drawn by a fixed seed; unused places are 0.
    """
    lines = np.random.default_rng(0).choice(places // 32 - 1, links, replace=False) + 1
    chain = np.zeros(places, np.int32)
    chain[np.append(0, 32 * lines[:-1])] = 32 * lines
    return chain
