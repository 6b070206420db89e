"""View other libraries' device arrays as CuPy's, without a copy, and give the stream that these libraries use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from spmark.impls.core.errors import OperandError
from spmark.impls.runtime.withcupy import cupy


def adopt(array: Any) -> cupy.ndarray:
    """View an array of CuPy, PyTorch or another library as CuPy's.

    Raises
    ------
    OperandError
        The array is not on a GPU.
    """
    if isinstance(array, cupy.ndarray):
        return array
    torch = sys.modules.get("torch")
    if torch is not None and type(array) is torch.Tensor and array.is_cuda and not array.requires_grad:
        dtype = _dtypes(torch).get(array.dtype)
        if dtype is not None and array.layout is torch.strided:
            return view_of(array, dtype, array.get_device())
    try:
        if hasattr(array, "__cuda_array_interface__"):
            return cupy.asarray(array)
        if hasattr(array, "__dlpack_device__") and not hasattr(array, "__array_interface__"):
            return cupy.from_dlpack(array)
    except (TypeError, AttributeError, BufferError, RuntimeError, ValueError) as error:
        raise OperandError(f"expected an array on the GPU, found {type(array).__name__}: {error}") from error
    raise OperandError(
        f"expected an array on the GPU (__cuda_array_interface__ or DLPack), found {type(array).__name__}: "
        "move it there first, for instance with cupy.asarray"
    )


def view_of(tensor: Any, dtype: np.dtype[Any], device: int) -> cupy.ndarray:
    """View a strided tensor's memory on a GPU as CuPy's array, and keep the tensor alive.

    ``__cuda_array_interface__`` takes several times as long, since CuPy asks it twice and then the driver.

    Parameters
    ----------
    tensor : torch.Tensor
    dtype : numpy.dtype
        Of the tensor's elements.
    device : int
        Number of the GPU.
    """
    strides = None
    if not tensor.is_contiguous():
        strides = tuple([dtype.itemsize * one for one in tensor.stride()])
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr(), tensor.nbytes, tensor, device)
    return cupy.ndarray(tensor.shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


@cache
def _dtypes(torch: Any) -> dict[Any, np.dtype[Any]]:
    """Give NumPy's dtype of each type that plans take: bfloat16 as uint16, since NumPy has no such type."""
    names = ("float16", "float32", "float64", "uint16", "int32", "int64")
    return {getattr(torch, name): np.dtype(name) for name in names} | {torch.bfloat16: np.dtype(np.uint16)}


def stream_of(arrays: Sequence[Any]) -> AbstractContextManager[Any] | None:
    """Give PyTorch's current stream where one of ``arrays`` is a tensor on a GPU, else None, for CuPy's current one.

    The stream is that of the tensor's GPU. It is asked for by its handle, since making PyTorch's own object of it takes
    longer than the rest of a call.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        for array in arrays:
            if isinstance(array, torch.Tensor) and array.is_cuda:
                return _stream(torch._C._cuda_getCurrentRawStream(array.get_device()))
    return None


@lru_cache(maxsize=64)
def _stream(handle: int) -> AbstractContextManager[Any]:
    told = SimpleNamespace(__cuda_stream__=lambda: (0, handle))  # CUDA's stream protocol
    stream: AbstractContextManager[Any] = cupy.cuda.Stream.from_external(told)
    return stream
