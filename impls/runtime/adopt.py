"""View other libraries' device arrays as CuPy's, without a copy, and give the stream that these libraries use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

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


def stream_of(arrays: Sequence[Any]) -> AbstractContextManager[Any] | None:
    """Give PyTorch's current stream where one of ``arrays`` is a tensor on a GPU, else None, for CuPy's current one."""
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(array, torch.Tensor) and array.is_cuda for array in arrays):
        return None
    stream: AbstractContextManager[Any] = cupy.cuda.Stream.from_external(torch.cuda.current_stream())
    return stream
