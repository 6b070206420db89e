"""Dense arrays of the libraries that people use: what a plan may take of them, and results of the same kind.

A `Library` says what decides whether an array can be passed on as it is, shows it to a plan, and makes new arrays.
PyTorch and CuPy are imported only where an argument is theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np

from spmark.impls.core.errors import OperandError
from spmark.impls.core.problem import dtype_name
from spmark.impls.operator.matrices import ElementType, has_tangent, refuse_gradient

ALIGNMENT = 16
"""Bytes of the widest load of a kernel: what is aligned to them can be passed to every plan."""


class Library:
    """The arrays of one library: of NumPy, of which ml_dtypes' bfloat16 are, too, and of others as they say here."""

    allocates_in_capture = True
    """Whether `empty` may be called while a stream captures a graph."""

    def on_host(self, array: Any) -> bool:
        """Tell whether an array is in the host's memory."""
        return True

    def signature(self, array: Any) -> Hashable:
        """Give what decides whether an array can be passed as it is: type, shape, strides, alignment, place.

        NumPy's flags stand for strides: they tell contiguous, aligned and writable arrays from others.
        """
        return array.__class__, array.dtype, array.shape, array.flags.num

    def passable(self, array: Any) -> bool:
        """Tell whether a plan can take an array as it is: row-major, contiguous, aligned."""
        return bool(array.flags.c_contiguous and array.flags.aligned)

    def copied(self, array: Any) -> Any:
        """Copy to new memory, row-major and contiguous."""
        return np.array(array, order="C", subok=False)

    def shown(self, array: Any) -> Any:
        """Show an array to a plan, without a copy: bfloat16 as uint16.

        It is the one type of kind V that passes the checks: asking for its name takes 1 us.
        """
        return array.view(np.uint16) if array.dtype.kind == "V" else array

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Make an array of the type and at the place of another one, contents undefined."""
        return np.empty(shape, like.dtype)

    def check(self, array: Any, role: str) -> None:
        """Refuse an array whose use would surprise: a gradient that would be lost, a sparse tensor.

        Raises
        ------
        OperandError, ProblemError
            Says what was expected, what was found and what to do.
        """


class TorchTensors(Library):
    """PyTorch's tensors on the host, or on GPUs."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def on_host(self, array: Any) -> bool:
        """Ask the tensor."""
        return not array.is_cuda

    def signature(self, array: Any) -> Hashable:
        """Take what a plan's check and the checks of this class look at."""
        if array.layout is not self._torch.strided or array.is_nested or has_tangent(array, self._torch):
            return (array.layout,)  # `check` refuses each of these
        place = (array.device, array.data_ptr() % ALIGNMENT, array.requires_grad, array.is_neg())
        return array.__class__, array.dtype, array.shape, array.stride(), place

    def passable(self, array: Any) -> bool:
        """Ask the tensor; one that requires a gradient is looked at anew each time."""
        plain = array.is_contiguous() and not array.is_neg() and not array.requires_grad
        return bool(plain and (not array.is_cuda or array.data_ptr() % ALIGNMENT == 0))

    def copied(self, array: Any) -> Any:
        """Copy."""
        return array.detach().resolve_neg().clone(memory_format=self._torch.contiguous_format)

    def shown(self, array: Any) -> Any:
        """View as NumPy's on the host; a GPU's tensors are adopted by plans."""
        bits = array.detach() if array.requires_grad else array
        bits = bits.view(self._torch.uint16) if array.dtype is self._torch.bfloat16 else bits
        return bits if array.is_cuda else bits.numpy()

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Allocate on the tensor's device."""
        return like.new_empty(shape)

    def check(self, array: Any, role: str) -> None:
        """Refuse sparse and nested tensors, and gradients that would be lost."""
        refuse_nested(array, role)
        if array.layout is not self._torch.strided:
            raise OperandError(f"{role}: expected a dense tensor, found layout {array.layout}: pass tensor.to_dense()")
        refuse_gradient(array, self._torch, role)


def refuse_nested(tensor: Any, role: str) -> None:
    """Refuse a nested tensor, of which even the shape cannot be asked.

    Raises
    ------
    OperandError
        The tensor is nested.
    """
    if tensor.is_nested:
        raise OperandError(f"{role}: expected a dense tensor, found a nested one: pass each of tensor.unbind()")


def library_of(array: Any, role: str) -> tuple[Library, Any]:
    """Find the library of an array, and give the array as that library has it.

    Arrays of other libraries come in through ``__cuda_array_interface__`` as CuPy's, or through DLPack as NumPy's or
    CuPy's, without a copy.

    Raises
    ------
    OperandError
        The argument is no array of a library.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise OperandError(f"{role}: expected a plain array, found a masked one: pass array.filled(0)")
    if isinstance(array, np.ndarray):
        return Library(), array if type(array) is np.ndarray else np.asarray(array)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type not in ("cpu", "cuda"):
            raise OperandError(f"{role}: expected a tensor on cpu or cuda, found one on {array.device}: copy it there")
        return TorchTensors(torch), array
    on_gpu = hasattr(type(array), "__cuda_array_interface__")  # to read it asks the device
    if not on_gpu and hasattr(array, "__dlpack_device__"):
        if array.__dlpack_device__()[0] == 1:
            return Library(), np.from_dlpack(array)
        on_gpu = True
    if on_gpu:
        from spmark.impls.operator.gpu import CupyArrays, adopted

        return CupyArrays(), adopted(array)
    found = f"{type(array).__module__}.{type(array).__qualname__}"
    remedy = "pass one"
    if hasattr(array, "toarray"):
        remedy = "its toarray() makes one"
    elif isinstance(array, list | tuple) or hasattr(array, "__array__"):
        remedy = "numpy.asarray(...) makes one"
    raise OperandError(f"{role}: expected a dense array of NumPy, CuPy or PyTorch, found a {found}: {remedy}")


_name_of = cache(dtype_name)


def check_dtype(array: Any, dtype: ElementType, role: str) -> None:
    """Refuse an array of another type: nothing is converted without being asked.

    Raises
    ------
    OperandError
        Says both types.
    """
    found = _name_of(array.dtype)
    if found != dtype:
        other = f", or compile with dtype='{found}'" if found in tuple(ElementType) else ""
        raise OperandError(f"{role}: expected dtype {dtype}, found {found}: convert the array{other}")


def check_shape(array: Any, shape: Sequence[int | None], role: str) -> None:
    """Refuse an array of another shape, in which None stands for any length of at least 1.

    Raises
    ------
    OperandError
        Says both shapes.
    """
    found = tuple(array.shape)
    fits = len(found) == len(shape) and all(
        size >= 1 if wanted is None else size == wanted for size, wanted in zip(found, shape, strict=False)
    )
    if not fits:
        wanted_shape = ", ".join("J" if one is None else str(one) for one in shape)
        raise OperandError(
            f"{role}: expected shape ({wanted_shape}), found {found}; A is I x K and the dense width is J, at least 1"
        )
