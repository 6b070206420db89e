"""Plans that call PyTorch: the caller's arrays as tensors, on the caller's stream; PyTorch is imported on use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import UnsupportedError, not_installed
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operands import check_operands
from spmark.impls.core.relational import AnyProblem

Tensor = Any
"""A `torch.Tensor`; the type has no name before PyTorch is imported."""


def torch_missing(kind: DeviceKind) -> str | None:
    """Say why PyTorch computes nothing on a kind of device here, or None."""
    if lacking := not_installed(("torch",), "torch"):
        return lacking
    if kind is DeviceKind.CUDA and not load_torch().cuda.is_available():
        return "this PyTorch has no CUDA, or finds no GPU"
    return None


class TorchPlan(Plan):
    """A plan whose run is a call of PyTorch; subclasses upload in ``__init__`` and write `compute`."""

    def __init__(self, problem: AnyProblem, kind: DeviceKind) -> None:
        super().__init__(stored=problem.matrix.nnz)
        if why := torch_missing(kind):
            raise UnsupportedError(why)
        self._shapes, self._dtype = (problem.operand_shapes, problem.out_shape), problem.dtype
        self.place = "cpu" if kind is DeviceKind.CPU else f"cuda:{load_torch().cuda.current_device()}"
        """PyTorch's name of the device."""

    def upload(self, array: NDArray[Any]) -> Tensor:
        """Copy to the plan's device, which is the phase upload; counted in `device_bytes`."""
        self.device_bytes += array.nbytes
        with self.phase("upload"):
            return _typed(load_torch().tensor(array, device=self.place))

    def run(self, operands: Sequence[Any], out: Any) -> None:
        """Call PyTorch on the caller's arrays, which are not copied; PyTorch may take memory from its own pool.

        Raises
        ------
        OperandError
            An operand does not fit.
        MemoryError
            PyTorch ran out of memory.
        """
        check_operands(*self._shapes, self._dtype, operands, out, device=self.place)
        with _current_stream((*operands, out)):
            *tensors, result = map(_tensor, (*operands, out))
            try:
                self.compute(tensors, result)
            except load_torch().OutOfMemoryError as error:
                raise MemoryError(str(error)) from error

    @abstractmethod
    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        """Enqueue on PyTorch's current stream; operands have been checked."""


def _tensor(array: Any) -> Tensor:
    torch = load_torch()
    if isinstance(array, torch.Tensor):
        return _typed(array.detach())
    return _typed(torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.as_tensor(array, device="cuda"))


def _typed(tensor: Tensor) -> Tensor:
    """View the bits of bfloat16, which come as uint16, as PyTorch's own type."""
    torch = load_torch()
    return tensor.view(torch.bfloat16) if tensor.dtype is torch.uint16 else tensor


def _current_stream(arrays: Sequence[Any]) -> AbstractContextManager[Any]:
    """Give the caller's stream: PyTorch's for tensors, CuPy's for arrays that are neither tensors nor on the host."""
    torch = load_torch()
    if all(isinstance(array, (torch.Tensor, np.ndarray)) for array in arrays):
        return nullcontext()
    from spmark.impls.runtime.withcupy import cupy

    handle = cupy.cuda.get_current_stream().ptr
    # PyTorch takes the handle 0 for none, and would give a stream of its own.
    stream = torch.cuda.ExternalStream(handle) if handle else torch.cuda.default_stream()
    return cast(AbstractContextManager[Any], torch.cuda.stream(stream))


def load_torch() -> Any:
    """Give the module torch."""
    import torch  # pyright: ignore[reportMissingImports]

    return torch
