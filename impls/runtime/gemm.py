"""Row-major products by cuBLAS, which a CUDA graph can capture; CuPy refuses its own bindings meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import POINTER, c_int, c_size_t, c_void_p
from functools import cache

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.vendor import VendorLibrary
from spmark.impls.runtime.withcupy import cupy

WORKSPACE_BYTES = 32 << 20
"""Size that the library recommends for Hopper; with our own workspace the library allocates nothing in a run."""
_NO_REDUCED_PRECISION_REDUCTION = 16
NOT_SUPPORTED, OUT_OF_MEMORY = (8, 15), (3,)
TYPES = {DType.FLOAT32: 0, DType.FLOAT16: 2}
"""cudaDataType_t."""
COMPUTE_32F = 68
_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_DEFAULT_ALGORITHM = -1
_SIGNATURES = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmEx": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p),
        *(c_void_p, c_int, c_int, c_void_p, c_int, c_int),
        *(c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
}


@cache
def library() -> VendorLibrary:
    """Load cuBLAS and make this process's handle, once.

    Raises
    ------
    DeviceError
        cuBLAS cannot be loaded.
    """
    functions = {"create": "cublasCreate_v2", "describe": "cublasGetStatusString"}
    made = VendorLibrary("cublas", _SIGNATURES, NOT_SUPPORTED, OUT_OF_MEMORY, **functions)
    # Without this, partial sums of a split K are rounded to float16 before they are added.
    made("cublasSetMathMode", made.handle, _NO_REDUCED_PRECISION_REDUCTION)
    return made


class Gemm:
    """Row-major products out (m x n) = left (m x k) right (k x n), or right given as n x k and transposed.

    Parameters
    ----------
    plan : DevicePlan
        Owner of the workspace.
    n, k : int
    types : (DType, DType)
        Of left and right, and of out; sums are float32.
    right_transposed : bool
    """

    def __init__(
        self, plan: DevicePlan, n: int, k: int, types: tuple[DType, DType], right_transposed: bool = False
    ) -> None:
        self._library = library()
        self._workspace = plan.workspace((WORKSPACE_BYTES,), np.uint8)
        self._type, self._out_type = (TYPES[dtype] for dtype in types)
        # cuBLAS is column-major: it computes the transposed product, with the operands swapped.
        self._transposes = (_TRANSPOSE if right_transposed else _NO_TRANSPOSE, _NO_TRANSPOSE)
        self._n, self._k = n, k
        self._leading = (k if right_transposed else n, k, n)

    def __call__(self, products: Iterable[tuple[DeviceArray, DeviceArray, DeviceArray]]) -> None:
        """Enqueue products, each of left, right and out, on the current stream."""
        lib, (ld_right, ld_left, ld_out) = self._library, self._leading
        lib("cublasSetStream_v2", lib.handle, c_void_p(cupy.cuda.get_current_stream().ptr))
        # The library drops its workspace when a stream is set, so the workspace is set after it.
        lib("cublasSetWorkspace_v2", lib.handle, c_void_p(self._workspace.data.ptr), self._workspace.nbytes)
        for left, right, out in products:
            lib(
                *("cublasGemmEx", lib.handle, *self._transposes, self._n, left.shape[0], self._k, lib.one),
                *(c_void_p(right.data.ptr), self._type, ld_right, c_void_p(left.data.ptr), self._type, ld_left),
                *(lib.zero, c_void_p(out.data.ptr), self._out_type, ld_out, COMPUTE_32F, _DEFAULT_ALGORITHM),
            )
