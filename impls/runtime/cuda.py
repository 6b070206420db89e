"""The GPU as a target: CuPy's arrays, streams and module loading under the project's own compiler and checks."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, CompileError, DeviceError, KernelFault
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.runtime.compile import Binary, begin, compile_many
from spmark.impls.runtime.noting import note
from spmark.impls.runtime.overlap import MIN_CAPABILITY, launch_overlapping
from spmark.impls.runtime.target import Grid, Kernel, Target
from spmark.impls.runtime.template import Instance
from spmark.impls.runtime.withcupy import cupy

_STATIC_SHARED_LIMIT = 48 << 10
driver, runtime = cupy.cuda.driver, cupy.cuda.runtime


@dataclass
class CudaKernel:
    """A function of a loaded module."""

    instance: Instance
    binary: Binary
    function: Any
    overlaps: bool
    """Whether the GPU can begin this kernel before the kernel enqueued before has ended."""
    _dynamic_bytes: int = 0

    def allow_shared(self, shared_bytes: int) -> None:
        """Opt in to more than 48 KB of dynamic shared memory; at build, never in a run.

        Raises
        ------
        BuildError
            A block of this GPU has less.
        """
        if shared_bytes > max(self._dynamic_bytes, _STATIC_SHARED_LIMIT - self.binary.shared_bytes):
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                driver.funcSetAttribute(self.function.ptr, attribute, shared_bytes)
            except driver.CUDADriverError as error:
                raise BuildError(
                    f"{self.instance.expression}: expected shared memory that a block of this GPU has, found "
                    f"{shared_bytes:,} bytes: {error}"
                ) from error
            self._dynamic_bytes = shared_bytes

    def launch(self, grid: Grid, args: Sequence[Any], shared_bytes: int = 0, overlap: bool = False) -> None:
        """Enqueue on the current stream."""
        if not all(grid):
            return
        overlap = overlap and self.overlaps
        note(self.function, grid, self.instance.threads, args, shared_bytes, overlap)
        if overlap:
            launch_overlapping(self.function.ptr, grid, self.instance.threads, args, shared_bytes)
        else:
            self.function(grid, (self.instance.threads, 1, 1), args, shared_mem=shared_bytes)


class CudaTarget(Target):
    """GPU number 0, or CuPy's current device.

    Parameters
    ----------
    spec : DeviceSpec
    keep : bool
        Whether kernels that were loaded stay, also where no plan has them any more.

    Raises
    ------
    DeviceError
        There is no GPU, or the GPU's architecture differs from the spec's.
    """

    xp: Any = cupy

    def __init__(self, spec: DeviceSpec, keep: bool = False) -> None:
        super().__init__(spec)
        self._kernels: MutableMapping[Instance, CudaKernel] = {} if keep else WeakValueDictionary()
        self._pages: list[NDArray[Any]] = []
        try:
            device = cupy.cuda.Device()
            arch, self.location = f"sm_{device.compute_capability}", f"cuda:{device.id}"
        except runtime.CUDARuntimeError as error:
            raise DeviceError(f"expected a GPU like {spec.name}, found none: {error}") from error
        if arch != spec.arch:
            raise DeviceError(f"expected a GPU of {spec.arch} ({spec.name}), found {arch}")

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """Copy to the GPU, blocking; what is there already is taken as it is.

        CuPy's own way would lock pages for every copy, which takes longer than a copy of a few megabytes.
        """
        if isinstance(array, cupy.ndarray):
            return cupy.ascontiguousarray(array)
        array = np.ascontiguousarray(array)
        on_device = cupy.empty(array.shape, array.dtype)
        on_device.data.copy_from_host_async(array.ctypes.data, array.nbytes)
        cupy.cuda.get_current_stream().synchronize()
        return on_device

    def filled(self, shape: tuple[int, ...], dtype: DTypeLike, byte: int) -> DeviceArray:
        """Enqueue the filling."""
        array = cupy.empty(shape, dtype)
        array.data.memset_async(byte, array.nbytes)
        return array

    def repeated(self, numbers: NDArray[Any], shape: tuple[int, ...]) -> DeviceArray:
        """Copy the numbers to the GPU once, and enqueue copies of them there."""
        source, array = self.upload(numbers), cupy.empty(shape, numbers.dtype)
        flat = array.reshape(-1)
        for at in range(0, flat.size, numbers.size):
            part = flat[at : at + numbers.size]
            part.data.copy_from_device_async(source.data, part.nbytes)
        return array

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """Copy to the host, blocking; CuPy's own way takes longer for a few numbers."""
        with cuda_faults():
            array, on_host = cupy.ascontiguousarray(array), np.empty(array.shape, array.dtype)
            array.data.copy_to_host_async(on_host.ctypes.data, array.nbytes)
            cupy.cuda.get_current_stream().synchronize()
            return on_host

    def readable(self, count: int) -> tuple[DeviceArray, Callable[[], list[int]]]:
        """Allocate pages of the host that kernels write to, which takes less time than a copy of a few numbers."""
        on_host = np.frombuffer(cupy.cuda.alloc_pinned_memory(4 * count), np.int32, count)
        self._pages.append(on_host)  # a kernel that is still enqueued may write to it when its owner has gone
        memory = cupy.cuda.UnownedMemory(on_host.ctypes.data, on_host.nbytes, on_host, runtime.getDevice())

        def read() -> list[int]:
            with cuda_faults():
                cupy.cuda.get_current_stream().synchronize()
            return cast("list[int]", on_host.tolist())

        return cupy.ndarray(on_host.shape, np.int32, cupy.cuda.MemoryPointer(memory, 0)), read

    def load(self, instances: Sequence[Instance]) -> list[Kernel]:
        """Compile side by side where there are several, then load; a kernel that a plan still has is loaded once."""
        kernels = {one: self._kernels.get(one) for one in instances}
        missing = [one for one, kernel in kernels.items() if kernel is None]
        wanted = [(one.template.source, one.expression, self.spec.arch) for one in missing]
        binaries = compile_many(wanted) if wanted else []
        overlaps = int(self.spec.arch.removeprefix("sm_")) >= MIN_CAPABILITY
        for instance, binary in zip(missing, binaries, strict=True):
            if isinstance(binary, CompileError):
                raise binary
            with cuda_faults():
                loaded = CudaKernel(instance, binary, load_function(binary), overlaps)
            self._kernels[instance] = kernels[instance] = loaded
        return [cast("Kernel", kernels[one]) for one in instances]

    def kernel(self, instance: Instance) -> Kernel:
        """Give a kernel that a plan still has, or load it."""
        return self._kernels.get(instance) or super().kernel(instance)

    def begin(self, instances: Sequence[Instance]) -> None:
        """Compile on other threads."""
        begin((i.template.source, i.expression, self.spec.arch) for i in instances)

    def synchronize(self) -> None:
        """Wait for the device; a fault of any earlier launch surfaces here."""
        with cuda_faults():
            cupy.cuda.Device().synchronize()


def load_function(binary: Binary) -> Any:
    """Load a cubin into the current context and give its function (it keeps its module alive)."""
    module = cupy.cuda.function.Module()
    module.load(binary.cubin)
    return module.get_function(binary.symbol)


class cuda_faults(AbstractContextManager[Any]):
    """Turn CUDA's errors into `KernelFault`; memory that ran out stays `MemoryError`."""

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
            raise MemoryError(str(error)) from error
        if isinstance(error, (runtime.CUDARuntimeError, driver.CUDADriverError)):
            if "MemoryAllocation" in str(error) or "OUT_OF_MEMORY" in str(error):
                raise MemoryError(str(error)) from error
            raise KernelFault(f"CUDA says: {error}") from error
