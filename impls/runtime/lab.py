"""A device to measure on: a target with a stopwatch, peak memory, graph replay and a canary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.enums import Flush
from spmark.impls.core.errors import KernelFault
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.operators import RandomOperand
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.timing import HostStopwatch, Run, Stopwatch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


@dataclass
class Peak:
    """Most memory in use inside of a `Lab.peak` block."""

    bytes: int = 0


class Lab(Target):
    """A device to measure on. This one is the host: its memory, and its clock where times mean something."""

    stopwatch: Stopwatch | None
    """None where times mean nothing."""

    def __init__(self, spec: DeviceSpec, flush: Flush = Flush.WRITE) -> None:
        super().__init__(spec)
        self.stopwatch = HostStopwatch(spec.l2_bytes, flush) if spec.kind is DeviceKind.CPU else None

    def free_bytes(self) -> int:
        """Give the memory that can still be allocated."""
        return int(psutil.virtual_memory().available)

    def release(self) -> None:
        """Give memory that nothing refers to back to the system."""

    def draw(self, operand: RandomOperand, out: DeviceArray) -> None:
        """Write every value of an operand into a contiguous array of the target."""
        operand.fill(out)

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """Yield a `Peak`, which is filled when the block ends.

        On the host it is the process's own high-water mark (Linux; elsewhere the peak stays 0).
        """
        peak = Peak()
        before = 0
        with suppress(OSError):
            _CLEAR.write_text(_RESET_PEAK)
            before = _resident("VmRSS")
        yield peak
        if before:
            peak.bytes = max(0, _resident("VmHWM") - before)

    def graph_times_us(self, run: Run, replays: int) -> list[float]:
        """Give the mean time of a captured launch in each replay; empty where there are no graphs."""
        return []


def open_lab(spec: DeviceSpec, flush: Flush = Flush.WRITE) -> Lab:
    """Open the lab of a device, whose stopwatch empties caches by ``flush``.

    Raises
    ------
    DeviceError
        The machine has no such device.
    """
    if spec.kind is DeviceKind.CUDA:
        from spmark.impls.runtime.cudalab import CudaLab

        return CudaLab(spec, flush)
    return Lab(spec, flush)


def canary(lab: Lab) -> None:
    """Compute a small sum on the device and compare it with the known result.

    Raises
    ------
    KernelFault
        The device does not compute.
    """
    numbers = lab.empty((1024,), np.float32)
    numbers[:] = lab.xp.arange(1024, dtype=np.float32)
    total = float(lab.download((numbers * 2).sum()))
    if total != 1023 * 1024:
        raise KernelFault(f"expected the device to add up to {1023 * 1024}, found {total}")


def _resident(field: str) -> int:
    line = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    return int(line[1]) << 10 if line else 0
