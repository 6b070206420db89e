"""Where plans live: one interface over a GPU and over the host that runs the same kernels under sanitizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.runtime.template import Instance

Grid = tuple[int, int, int]
MAX_GRID: Grid = (2**31 - 1, 65535, 65535)
"""Most blocks of a launch by dimension, on every architecture since sm_30."""


class Kernel(Protocol):
    """A loaded kernel."""

    instance: Instance

    def allow_shared(self, shared_bytes: int) -> None:
        """Opt in to launches with ``shared_bytes`` of dynamic shared memory, where that exceeds 48 KB; at build."""

    def launch(self, grid: Grid, args: Sequence[Any], shared_bytes: int = 0, overlap: bool = False) -> None:
        """Enqueue on the current stream.

        Parameters
        ----------
        grid : (x, y, z)
            Blocks; nothing is launched where one is 0.
        args : sequence
            Device arrays and NumPy scalars in the kernel's order; scalars carry their C type.
        shared_bytes : int
            Dynamic shared memory of a block.
        overlap : bool
            Where the device can, the grid may begin before the previous grid of the stream has ended. The kernel calls
            ``wait_for_previous_grid`` before it needs what the previous grid writes.
        """


class Target:
    """A place where arrays are held and kernels run. This one is the host's memory, which runs none."""

    xp: Any = np
    """NumPy or CuPy: the module of the target's arrays."""
    location = "cpu"
    """``cpu`` or ``cuda:0``, as `spmark.impls.core.operands.ArrayFacts` names it."""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """Copy a host array to the target and wait until it is there."""
        return np.array(array, order="C")

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
        """Allocate, contents undefined."""
        return self.xp.empty(shape, dtype)

    def filled(self, shape: tuple[int, ...], dtype: DTypeLike, byte: int) -> DeviceArray:
        """Allocate, every byte as told."""
        return np.full((*shape, np.dtype(dtype).itemsize), byte, np.uint8).view(dtype)[..., 0]

    def repeated(self, numbers: NDArray[Any], shape: tuple[int, ...]) -> DeviceArray:
        """Allocate, with numbers of the host (n,) one after the other, and again from the first."""
        return np.resize(numbers, shape)

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """Copy to the host, after everything enqueued before."""
        return np.array(array)

    @cached_property
    def no_floats(self) -> DeviceArray:
        """An array of float32 without elements, which takes as long to make as a launch."""
        return self.empty((0,), np.float32)

    def readable(self, count: int) -> tuple[DeviceArray, Callable[[], list[int]]]:
        """Allocate int32 that kernels write, and give what reads them once the current stream has come so far."""
        array = np.zeros(count, np.int32)
        return array, array.tolist

    def load(self, instances: Sequence[Instance]) -> list[Kernel]:
        """Compile instances that are not cached, many at once, and load all.

        Raises
        ------
        CompileError
            An instance does not compile; the error is that of the first such instance.
        DeviceError
            The target runs no kernels.
        """
        raise DeviceError(f"expected a device that runs kernels (cuda, host-simt), found {self.spec.kind}")

    def kernel(self, instance: Instance) -> Kernel:
        """Give one kernel, as `load` does."""
        return self.load([instance])[0]

    def begin(self, instances: Sequence[Instance]) -> None:
        """Compile instances on other threads where the target's compiler allows that; `load` waits for them."""

    def synchronize(self) -> None:
        """Wait for everything enqueued; raises `KernelFault` where something failed."""


def open_target(spec: DeviceSpec) -> Target:
    """Open the device that ``spec`` describes.

    Raises
    ------
    DeviceError
        There is no such device here, or CuPy or g++ is missing.
    """
    if not isinstance(spec, DeviceSpec):
        raise DeviceError(f"expected a device as spmark.impls.runtime.device.find gives it, found {spec!r}")
    if spec.kind is DeviceKind.CUDA:
        from spmark.impls.runtime.cuda import CudaTarget

        return CudaTarget(spec)
    if spec.kind is DeviceKind.HOST_SIMT:
        from spmark.impls.runtime.host.ring import HostTarget

        return HostTarget(spec)
    raise DeviceError(f"expected a device that runs kernels (cuda, host-simt), found {spec.kind}")


def too_wide(width: int, tile: int, name: str = "J") -> str | None:
    """Say that a grid has no room for J = ``width`` in tiles of so many columns; None where it has."""
    most = MAX_GRID[1] * tile
    return f"expected {name} of at most {most:,}, found {width:,}" if width > most else None


def ceil_div(amount: int, size: int) -> int:
    """Give the number of pieces of ``size`` that cover ``amount``."""
    return -(-amount // size)
