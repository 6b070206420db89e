"""The GPU to measure on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.enums import Flush
from spmark.impls.runtime.cuda import CudaTarget
from spmark.impls.runtime.cudatiming import CapturedGraph, CudaStopwatch, PeakMemory
from spmark.impls.runtime.lab import Peak
from spmark.impls.runtime.timing import Run, Stopwatch
from spmark.impls.runtime.withcupy import cupy


class CudaLab:
    """CuPy's current device."""

    xp: Any = cupy

    def __init__(self, spec: DeviceSpec, flush: Flush = Flush.WRITE) -> None:
        self._target = CudaTarget(spec)
        self.stopwatch: Stopwatch | None = CudaStopwatch(spec, flush)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Allocate from CuPy's pool."""
        return self._target.empty(shape, dtype)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Copy."""
        return np.asarray(self._target.download(array))

    def synchronize(self) -> None:
        """Wait."""
        self._target.synchronize()

    def free_bytes(self) -> int:
        """Ask the driver; unused memory of CuPy's pool counts as free."""
        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free + cupy.get_default_memory_pool().free_bytes())

    def release(self) -> None:
        """Empty CuPy's pools."""
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """Record the peak of CuPy's pool."""
        peak = Peak()
        with PeakMemory() as hook:
            yield peak
        peak.bytes = hook.peak

    def graph_times_us(self, run: Run, replays: int) -> list[float]:
        """Capture and replay."""
        return CapturedGraph(run).times_us(replays)
