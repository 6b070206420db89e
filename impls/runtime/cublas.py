"""The calls of cuBLAS that plans make; CuPy refuses its own bindings while a stream is captured."""

from __future__ import annotations

from ctypes import POINTER, c_int, c_size_t, c_void_p
from functools import cache

from spmark.impls.core.problem import DType
from spmark.impls.runtime.vendor import VendorLibrary

WORKSPACE_BYTES = 32 << 20
"""Size that the library recommends for Hopper; with our own workspace the library allocates nothing in a run."""
_NO_REDUCED_PRECISION_REDUCTION = 16
NOT_SUPPORTED, OUT_OF_MEMORY = (8, 15), (3,)
TYPES = {DType.FLOAT32: 0, DType.FLOAT16: 2}
"""cudaDataType_t."""
COMPUTE_32F = 68
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
