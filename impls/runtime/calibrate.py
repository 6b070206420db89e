"""The rates of a GPU: copy and read bandwidth, multiply-adds, matrix units, launches. Medians over large data."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.runtime.cuda import CudaTarget
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.device import versions
from spmark.impls.runtime.target import Grid
from spmark.impls.runtime.template import Instance, KernelTemplate
from spmark.impls.runtime.timing import Run
from spmark.impls.runtime.withcupy import cupy

_SOURCE = Path(__file__).parent / "kernels" / "calibrate.cu"
_THREADS = 512
_UNROLL = 4
READ_ALL = KernelTemplate(_SOURCE, "read_all", {"unroll": (_UNROLL,), "threads": (_THREADS,)})
COPY_ALL = KernelTemplate(_SOURCE, "copy_all", {"unroll": (_UNROLL,), "threads": (_THREADS,)})
MULTIPLY_ADD = KernelTemplate(_SOURCE, "multiply_add", {"threads": (_THREADS,)})
MATRIX_MULTIPLY = KernelTemplate(_SOURCE, "matrix_multiply", {"tf32": (False, True), "threads": (_THREADS,)})
NOTHING = KernelTemplate(_SOURCE, "nothing", {"threads": (32,)})
KERNELS = (READ_ALL, COPY_ALL, MULTIPLY_ADD, MATRIX_MULTIPLY, NOTHING)

_SAMPLES = 21
_ROUNDS = 4096
_LAUNCHES = 100
_SUMS = {"multiply_add": 16, "matrix_multiply": 8}
_MMA_FLOPS = {"float16": 2 * 16 * 8 * 16, "tf32": 2 * 16 * 8 * 8}


def calibrate_cuda(spec: DeviceSpec) -> DeviceSpec:
    """Measure the GPU's rates; needs a quarter of its memory at most, 4 GB a buffer at most."""
    target = CudaTarget(spec)
    stopwatch = CudaStopwatch(spec)

    def seconds(run: Run) -> float:
        stopwatch.batch([run], 5, cold=False)
        return float(np.median(stopwatch.batch([run], _SAMPLES, cold=False))) * 1e-6

    def kernel(instance: Instance, grid: Grid, *args: object) -> Run:
        (loaded,) = target.load([instance])
        return lambda: loaded.launch(grid, args)

    values = min(1 << 30, spec.memory_bytes // 32)
    source, held = cupy.ones(values, cupy.float32), cupy.empty(values, cupy.float32)
    count = np.int64(values // 4)
    waves = (8 * spec.num_sms, 1, 1)
    # Both the copy engine's way (cudaMemcpy) and a kernel's: the better one is the ceiling.
    copies = [
        seconds(lambda: held.data.copy_from_device_async(source.data, source.nbytes)),
        seconds(kernel(COPY_ALL.instance(unroll=_UNROLL, threads=_THREADS), waves, count, source, held)),
    ]
    read = seconds(kernel(READ_ALL.instance(unroll=_UNROLL, threads=_THREADS), waves, count, source, held))

    grid = (4 * spec.num_sms, 1, 1)
    threads = grid[0] * _THREADS
    rounds, factor = np.int32(_ROUNDS), np.float32(0.5)
    fma = seconds(kernel(MULTIPLY_ADD.instance(threads=_THREADS), grid, rounds, factor, held))
    tensor = {
        name: seconds(kernel(MATRIX_MULTIPLY.instance(tf32=name == "tf32", threads=_THREADS), grid, rounds, held))
        for name in _MMA_FLOPS
    }
    empty = kernel(NOTHING.instance(threads=32), (1, 1, 1))

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
            "tensor_flops_per_s": {
                name: warps * _ROUNDS * _SUMS["matrix_multiply"] * flops / tensor[name]
                for name, flops in _MMA_FLOPS.items()
            },
            "launch_s": launch,
            "calibrated_with": {"driver": driver, "cuda": cuda, "on": f"{datetime.now(UTC):%Y-%m-%d}"},
        }
    )
