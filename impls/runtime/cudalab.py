"""The GPU to measure on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.enums import Flush
from spmark.impls.runtime.cuda import CudaTarget, cuda_faults
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.lab import Lab, Peak
from spmark.impls.runtime.timing import Run
from spmark.impls.runtime.withcupy import cupy

_REPLAYED = 20
"""Launches in a captured graph."""


class CudaLab(CudaTarget, Lab):
    """CuPy's current device."""

    to_host = CudaTarget.download

    def __init__(self, spec: DeviceSpec, flush: Flush = Flush.WRITE) -> None:
        super().__init__(spec)
        self.stopwatch = CudaStopwatch(spec, flush)

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
        with _PeakMemory(peak):
            yield peak

    def graph_times_us(self, run: Run, replays: int) -> list[float]:
        """Replay launches of a run in a CUDA graph and give the mean time of a launch in each replay.

        A run that can be captured neither allocates nor synchronises. Caches are warm, and launches have no gaps.

        Raises
        ------
        KernelFault
            The run cannot be captured.
        """
        times = []
        with cuda_faults(), cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            try:
                for _ in range(_REPLAYED):
                    run()
            finally:
                graph = stream.end_capture()
            graph.launch(stream)
            for _ in range(replays):
                before, after = cupy.cuda.Event(), cupy.cuda.Event()
                before.record(stream)
                graph.launch(stream)
                after.record(stream)
                after.synchronize()
                times.append(cupy.cuda.get_elapsed_time(before, after) * 1e3 / _REPLAYED)
        return times


class _PeakMemory(cupy.cuda.MemoryHook):  # type: ignore[misc]
    """Counts bytes of CuPy's pool while the hook is entered; allocations of libraries past CuPy do not count."""

    name = "PeakMemory"

    def __init__(self, peak: Peak) -> None:
        self._peak = peak
        peak.bytes = self._used = cupy.get_default_memory_pool().used_bytes()

    def malloc_postprocess(self, **facts: Any) -> None:
        """Count an allocation."""
        if facts["mem_ptr"]:
            self._used += facts["mem_size"]
            self._peak.bytes = max(self._peak.bytes, self._used)

    def free_postprocess(self, **facts: Any) -> None:
        """Count a release."""
        self._used -= facts["mem_size"]
