"""The two calls of cuBLAS that the plans make; CuPy refuses its own bindings while a stream is captured."""

from __future__ import annotations

from ctypes import POINTER, c_int, c_size_t, c_void_p
from functools import cache

from spmark.impls.runtime.vendor import VendorLibrary

WORKSPACE_BYTES = 32 << 20
"""Size that the library recommends for Hopper; with our own workspace the library allocates nothing in a run."""
_NO_REDUCED_PRECISION_REDUCTION = 16
_NOT_SUPPORTED = (8, 15)
_OUT_OF_MEMORY = (3,)
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


class CublasLibrary(VendorLibrary):
    """The loaded library and a handle of it.

    Raises
    ------
    DeviceError
        cuBLAS cannot be loaded.
    """

    def __init__(self) -> None:
        functions = {"create": "cublasCreate_v2", "describe": "cublasGetStatusString"}
        super().__init__("cublas", _SIGNATURES, _NOT_SUPPORTED, _OUT_OF_MEMORY, **functions)
        # Without this, partial sums of a split K are rounded to float16 before they are added.
        self("cublasSetMathMode", self.handle, _NO_REDUCED_PRECISION_REDUCTION)


@cache
def library() -> CublasLibrary:
    """Load cuBLAS and make this process's handle, once."""
    return CublasLibrary()
