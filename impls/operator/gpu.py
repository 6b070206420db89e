"""CuPy's side of compiled operators: its arrays, and the streams that calls are enqueued on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np

from spmark.impls.core.relational import RelationalCsr
from spmark.impls.core.voxels import map_of
from spmark.impls.kernels.kernel_maps import KernelMaps
from spmark.impls.operator.arrays import ALIGNMENT, Library
from spmark.impls.runtime.adopt import adopt, stream_of
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.withcupy import cupy

_NOT_CAPTURED = (0, 1)
"""The legacy default stream, by either of its handles, which no capture begins on."""


class CupyArrays(Library):
    """CuPy's arrays, and those of other libraries that CuPy adopted."""

    allocates_in_capture = False

    def on_host(self, array: Any) -> bool:
        """Say no."""
        return False

    def signature(self, array: Any) -> Hashable:
        """Take what a plan's check looks at."""
        data = array.data
        return array.__class__, array.dtype, array.shape, array.strides, data.ptr % ALIGNMENT, data.device_id

    def passable(self, array: Any) -> bool:
        """Ask the flags and the address."""
        return bool(array.flags.c_contiguous and array.data.ptr % ALIGNMENT == 0)

    def copied(self, array: Any) -> Any:
        """Copy."""
        return cupy.array(array, order="C")

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Allocate from CuPy's pool."""
        return cupy.empty(shape, like.dtype)


class CudaStreams:
    """The streams on which calls arrive: CuPy's current one, or PyTorch's where an array is a tensor."""

    _unmarked: Any = None
    """The default stream, where the last call was on it: its event is recorded once another stream asks."""

    @cached_property
    def _event(self) -> Any:
        return cupy.cuda.Event(disable_timing=True)

    def current(self, arrays: Sequence[Any]) -> Any:
        """Give the stream of a call with these arrays."""
        return stream_of(arrays) or cupy.cuda.get_current_stream()

    def capturing(self, stream: Any) -> bool:
        """Tell whether a stream captures a graph."""
        return stream.ptr not in _NOT_CAPTURED and bool(cupy.cuda.runtime.streamIsCapturing(stream.ptr))

    def wait(self, stream: Any) -> None:
        """Let a stream wait for the last marked call."""
        if self._unmarked is not None:
            self._event.record(self._unmarked)
            self._unmarked = None
        stream.wait_event(self._event)

    def mark(self, stream: Any) -> None:
        """Mark the end of a call on a stream; the default stream outlives the call, so that its mark can wait."""
        if stream.ptr in _NOT_CAPTURED:
            self._unmarked = stream
        else:
            self._event.record(stream)
            self._unmarked = None


class GpuMaps:
    """Voxels and maps of PyTorch's tensors on the current GPU."""

    def __init__(self) -> None:
        self._target = open_target(find("cuda"))
        self._maps = KernelMaps(self._target)
        self.distinct_voxels = self._maps.distinct_voxels

    def stream(self, tensor: Any) -> AbstractContextManager[Any]:
        """Let CuPy enqueue where PyTorch does."""
        return on_stream_of([tensor])

    def array(self, tensor: Any) -> Any:
        """View a tensor as CuPy's array."""
        return adopt(tensor.detach().contiguous())

    def tensor(self, array: Any) -> Any:
        """View an array of CuPy as a tensor."""
        import torch  # pyright: ignore[reportMissingImports]

        return torch.as_tensor(array, device=f"cuda:{array.device.id}")

    def kernel_map(self, outputs: Any, inputs: Any, size: int = 3, stride: int = 1) -> RelationalCsr:
        """Find a map on the GPU, and copy it to the host, where plans begin."""
        indptr, indices = map(self._target.download, self._maps.kernel_map(outputs, inputs, size, stride))
        return map_of(len(inputs), size**3, indptr, indices)


def adopted(array: Any) -> Any:
    """Give an array of the GPU, or a copy of one of the host, as CuPy's."""
    return cupy.asarray(array) if isinstance(array, np.ndarray) else adopt(array)


def on_stream_of(arrays: Sequence[Any]) -> AbstractContextManager[Any]:
    """Let CuPy enqueue inside of a ``with`` statement where the owners of some arrays enqueue."""
    return stream_of(arrays) or nullcontext()
