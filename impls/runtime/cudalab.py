"""The GPU to measure on. Events time each run, after an L2 flush, and a gate holds all until they are enqueued."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.enums import Flush
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.operators import RandomOperand
from spmark.impls.core.problem import DType
from spmark.impls.runtime.compile import compile_kernel
from spmark.impls.runtime.cuda import CudaTarget, cuda_faults, load_function
from spmark.impls.runtime.lab import Lab
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.runtime.timing import DRAW, GATE, KERNELS, TAKE, Run, Stopwatch
from spmark.impls.runtime.withcupy import cupy

MIN_FLUSH_BYTES = 256 << 20
_GATE_NS = 50_000_000
_LIMIT_PERSISTING_L2 = 0x06
_THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_READERS_PER_SM = 4
_CHECKING_BLOCKS = 2048


class Gate:
    """Holds a stream back until the host has enqueued a whole batch of runs, so that no run waits for its launch.

    A host that shares its cores with compilers can be slower than the kernels it launches. A run that synchronises,
    or a batch beyond the driver's queue, waits once for the gate's limit of 50 ms.

    Parameters
    ----------
    arch : str
        Architecture of the current device.
    """

    def __init__(self, arch: str) -> None:
        self._launch = launcher(*GATE, arch)
        self._memory = cupy.cuda.alloc_pinned_memory(4)
        self._opened = np.frombuffer(self._memory, np.int32, 1)
        self._opened[0] = self._turn = 0

    def close(self) -> None:
        """Enqueue the gate on the current stream."""
        self._turn += 1
        self._launch(1, np.int32(self._turn), np.int64(_GATE_NS), np.int64(self._memory.ptr))

    def open(self) -> None:
        """Let the stream go on."""
        self._opened[0] = self._turn


@cache
def _loaded(source: str, expression: str, arch: str, _device: int) -> Any:
    return load_function(compile_kernel(KERNELS / source, expression, arch))


def launcher(source: str, expression: str, arch: str) -> Callable[..., None]:
    """Load a kernel of this layer, whose last template argument is the size of a block.

    Returns
    -------
    callable
        Enqueues a grid of so many blocks with the kernel's arguments: ``launch(blocks, *arguments)``.
    """
    function = _loaded(source, expression, arch, cupy.cuda.Device().id)
    threads = int(re.findall(r"\d+", expression)[-1])
    return lambda blocks, *args: function((blocks, 1, 1), (threads, 1, 1), args)


def draw(operand: RandomOperand, out: Any, arch: str) -> None:
    """Write every value of an operand into a contiguous (rows, J) array of CuPy; the bits are those of the host.

    CuPy could do it, by several kernels that a first process compiles one after the other.
    """
    launch = _launcher_of(DRAW, operand.dtype, arch)
    launch(_CHECKING_BLOCKS, np.int64(out.size), np.uint64(operand.key), out)


def taken(array: Any, places: NDArray[np.int64] | None, dtype: DType, arch: str) -> NDArray[Any]:
    """Copy rows of a result to the host, or elements where it has one dimension; all of it where ``places`` is None.

    Parameters
    ----------
    array : array
        Of CuPy, contiguous, of ``dtype.numpy``.
    places : (n,) int64, optional
    dtype : DType
    arch : str
        Architecture of the current device.
    """
    if places is not None:
        source, array = array, cupy.empty((places.size, *array.shape[1:]), array.dtype)
        sizes = np.int64(places.size), np.int64(prod(array.shape[1:]))
        _launcher_of(TAKE, dtype, arch)(_CHECKING_BLOCKS, *sizes, cupy.asarray(places), source, array)
    found: NDArray[Any] = cupy.asnumpy(array)
    return found


def _launcher_of(kernel: tuple[str, str], dtype: DType, arch: str) -> Callable[..., None]:
    source, expression = kernel
    return launcher(source, expression.format(C_TYPES[dtype]), arch)


class CudaStopwatch(Stopwatch):
    """Times the work that a run enqueues on the current stream.

    Parameters
    ----------
    spec : DeviceSpec
        Has the size of the L2: the flush buffer has at least twice this size and at least 256 MB.
    flush : Flush
        ``READ`` reads a second buffer of the L2's size after the first was written.
    """

    def __init__(self, spec: DeviceSpec, flush: Flush = Flush.WRITE) -> None:
        self._flush = cupy.zeros(max(2 * spec.l2_bytes, MIN_FLUSH_BYTES), cupy.uint8)
        self._read = _reading(spec) if flush is Flush.READ else None
        self._gate, self._nvml, self._handle = Gate(spec.arch), *nvml_handle()
        # A library may have set lines of the L2 aside: give the whole cache back.
        with suppress(Exception):
            cupy.cuda.runtime.deviceSetLimit(_LIMIT_PERSISTING_L2, 0)

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        """Enqueue ``rounds`` alternations behind the gate, open it, wait, and read the events."""
        stream = cupy.cuda.get_current_stream()
        events = [[(cupy.cuda.Event(), cupy.cuda.Event()) for _ in runs] for _ in range(rounds)]
        with cuda_faults():
            self._gate.close()
            for turn in events:
                for run, (before, after) in zip(runs, turn, strict=True):
                    if cold:
                        self._flush.data.memset_async(1, self._flush.nbytes, stream)
                        if self._read is not None:
                            self._read()
                    before.record(stream)
                    run()
                    after.record(stream)
            self._gate.open()
            stream.synchronize()
            return np.array([[cupy.cuda.get_elapsed_time(*pair) * 1e3 for pair in turn] for turn in events]).T

    def state(self) -> tuple[float, list[str]]:
        """Ask NVML; 0 and none where it is missing."""
        clock, bits, nvml = 0.0, 0, self._nvml
        if nvml is not None:
            with suppress(nvml.NVMLError):
                clock = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
            with suppress(nvml.NVMLError):
                bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        return clock, [name for bit, name in _THROTTLE_REASONS.items() if bits & bit]


def _reading(spec: DeviceSpec) -> Run:
    """Read a buffer of the L2's size, so that the lines of the flush buffer leave the L2 before a run begins."""
    launch = launcher("calibrate.cu", "read_all<1, 512>", spec.arch)
    source, sink = cupy.zeros(spec.l2_bytes // 16 * 4, cupy.float32), cupy.zeros(1, cupy.float32)
    return lambda: launch(_READERS_PER_SM * spec.num_sms, np.int64(source.size // 4), source, sink)


def nvml_handle() -> tuple[Any, Any]:
    """Give NVML and its handle of the current device, or None twice."""
    return _nvml_of(cupy.cuda.Device().id)


@cache
def _nvml_of(device: int) -> tuple[Any, Any]:
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        bus = cupy.cuda.runtime.deviceGetPCIBusId(device)
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode() if isinstance(bus, str) else bus)
    return None, None


_REPLAYED = 20
"""Launches in a captured graph."""


class CudaLab(CudaTarget, Lab):
    """CuPy's current device."""

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

    def draw(self, operand: RandomOperand, out: DeviceArray) -> None:
        """Draw on the GPU."""
        draw(operand, out, self.spec.arch)

    def peak(self) -> Any:
        """Record the peak of CuPy's pool."""
        return _PeakMemory()

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
    """A `Peak` of CuPy's pool while the hook is entered; allocations of libraries past CuPy do not count."""

    name = "PeakMemory"

    def __init__(self) -> None:
        self.bytes = self._used = cupy.get_default_memory_pool().used_bytes()

    def malloc_postprocess(self, **facts: Any) -> None:
        """Count an allocation."""
        if facts["mem_ptr"]:
            self._used += facts["mem_size"]
            self.bytes = max(self.bytes, self._used)

    def free_postprocess(self, **facts: Any) -> None:
        """Count a release."""
        self._used -= facts["mem_size"]
