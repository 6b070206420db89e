"""The part of cuSPARSE's generic interface that the plans use; CuPy binds neither preprocess nor SDDMM."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

from spmark.impls.core.problem import DType
from spmark.impls.runtime.vendor import VendorLibrary

NON_TRANSPOSE, TRANSPOSE = 0, 1
ALGORITHMS = {"default": 0, "alg1": 4, "alg2": 6, "alg3": 12}
"""cusparseSpMMAlg_t for CSR."""
_INDEX_32I, _BASE_ZERO, _ORDER_ROW = 2, 0, 2
_NOT_SUPPORTED = (10,)
_OUT_OF_MEMORY = (2, 11)

_SPMM = (c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int)
"""handle, opA, opB, alpha, A, B, beta, C, compute type, algorithm; SDDMM's are the same."""
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cusparseCreate": (POINTER(c_void_p),),
    "cusparseDestroy": (c_void_p,),
    "cusparseSetStream": (c_void_p, c_void_p),
    "cusparseCreateCsr": (
        *(POINTER(c_void_p), c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
    "cusparseDestroySpMat": (c_void_p,),
    "cusparseSpMatSetValues": (c_void_p, c_void_p),
    "cusparseCreateDnMat": (POINTER(c_void_p), c_int64, c_int64, c_int64, c_void_p, c_int, c_int),
    "cusparseDestroyDnMat": (c_void_p,),
    "cusparseDnMatSetValues": (c_void_p, c_void_p),
    **{f"cusparse{op}_bufferSize": (*_SPMM, POINTER(c_size_t)) for op in ("SpMM", "SDDMM")},
    **{f"cusparse{call}": (*_SPMM, c_void_p) for op in ("SpMM", "SDDMM") for call in (op, f"{op}_preprocess")},
}


@cache
def library() -> VendorLibrary:
    """Load cuSPARSE and make this process's handle, once.

    Raises
    ------
    DeviceError
        cuSPARSE cannot be loaded.
    """
    functions = {"create": "cusparseCreate", "describe": "cusparseGetErrorString"}
    return VendorLibrary("cusparse", _SIGNATURES, _NOT_SUPPORTED, _OUT_OF_MEMORY, **functions)


class Descriptor:
    """A matrix descriptor (``SpMat`` or ``DnMat``) that is destroyed with its last reference."""

    def __init__(self, kind: str, form: str, *arguments: Any) -> None:
        self.pointer, self._kind, self._library = c_void_p(), kind, library()
        self._library(f"cusparseCreate{form}", byref(self.pointer), *arguments)

    def point_to(self, address: int) -> None:
        """Set the device address of the values."""
        self._library(f"cusparse{self._kind}SetValues", self.pointer, c_void_p(address))

    def __del__(self) -> None:
        if self.pointer:  # unless the library refused to make it
            self._library(f"cusparseDestroy{self._kind}", self.pointer)


def csr(shape: tuple[int, int], nnz: int, arrays: Sequence[int], dtype: DType) -> Descriptor:
    """Describe a CSR matrix by the device addresses of indptr, indices and values."""
    return Descriptor("SpMat", "Csr", *shape, nnz, *arrays, _INDEX_32I, _INDEX_32I, _BASE_ZERO, dtype.cuda_type)


def dense(shape: tuple[int, int], dtype: DType) -> Descriptor:
    """Describe a row-major dense matrix of (rows, columns); its address comes with every run."""
    # The library wants an address that is not null; the first run sets the real one.
    return Descriptor("DnMat", "DnMat", *shape, shape[1], c_void_p(256), dtype.cuda_type, _ORDER_ROW)
