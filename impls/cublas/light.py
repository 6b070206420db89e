"""The calls of cuBLASLt that choose and run an algorithm for a product; CuPy does not bind the choice.

NVIDIA, cuBLAS documentation, "Using the cuBLASLt API". Numbers are those of ``cublasLt.h`` of CUDA 12 and 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from functools import cache
from typing import Any

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import DType
from spmark.impls.runtime.gemm import COMPUTE_32F, NOT_SUPPORTED, OUT_OF_MEMORY, TYPES, WORKSPACE_BYTES
from spmark.impls.runtime.vendor import VendorLibrary

ALIGNMENT = 16
"""Bytes to which operands and result are aligned; the library assumes 256 unless it is told."""
MOST_ALGORITHMS = 64
"""Algorithms that the library is asked for."""
_MAX_WORKSPACE_BYTES, _REDUCTION_SCHEME_MASK, _MIN_ALIGNMENTS = 1, 3, (5, 6, 7, 8)
_IN_COMPUTE_TYPE = 2
"""Partial sums of a split K may be added in float32 alone, never in the result's float16."""


class Heuristic(Structure):
    """``cublasLtMatmulHeuristicResult_t``: an algorithm, which is opaque, and what the library says of it."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("status", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_SIGNATURES = {
    "cublasLtCreate": (POINTER(c_void_p),),
    "cublasLtMatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (POINTER(c_void_p),),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, POINTER(Heuristic), POINTER(c_int)),
    "cublasLtMatmul": (*(c_void_p,) * 12, POINTER(Heuristic), c_void_p, c_size_t, c_void_p),
}


@cache
def library() -> VendorLibrary:
    """Load cuBLASLt and make this process's handle, once.

    Raises
    ------
    DeviceError
        cuBLASLt cannot be loaded.
    """
    functions = {"create": "cublasLtCreate", "describe": "cublasLtGetStatusString"}
    return VendorLibrary("cublasLt", _SIGNATURES, NOT_SUPPORTED, OUT_OF_MEMORY, **functions)


class Product:
    """A row-major product out (m x n) = left (m x k) right (k x n) in one dtype, summed in float32.

    Parameters
    ----------
    m, n, k : int
    dtype : DType

    Attributes
    ----------
    algorithms : list of Heuristic
        What the library can run, the algorithm that it would choose first.

    Raises
    ------
    DeviceError
        cuBLASLt cannot be loaded.
    UnsupportedError
        The library has no algorithm for the product.
    """

    def __init__(self, m: int, n: int, k: int, dtype: DType) -> None:
        self._made: list[tuple[str, c_void_p]] = []
        self._library = library()
        self._operation = self._create("MatmulDesc", COMPUTE_32F, TYPES[DType.FLOAT32])
        # cuBLASLt is column-major: it computes the transposed product, with the operands swapped.
        shapes = ((n, k), (k, m), (n, m))
        layouts = [self._create("MatrixLayout", TYPES[dtype], rows, cols, rows) for rows, cols in shapes]
        self._layouts = (*layouts, layouts[-1])
        self.algorithms = self._proposed()
        if not self.algorithms:
            raise UnsupportedError(
                f"expected an algorithm of cuBLASLt for {m} x {k} by {k} x {n} in {dtype}, found none"
            )

    def run(self, algorithm: Heuristic, left: int, right: int, out: int, *, workspace: int, stream: int) -> None:
        """Enqueue; ``left`` to ``workspace`` are addresses on the device, the workspace of `WORKSPACE_BYTES`."""
        lib, (of_right, of_left, of_out, _) = self._library, self._layouts
        lib(
            *("cublasLtMatmul", lib.handle, self._operation, lib.one, right, of_right, left, of_left),
            *(lib.zero, out, of_out, out, of_out, byref(algorithm), workspace, WORKSPACE_BYTES, stream),
        )

    def _proposed(self) -> list[Heuristic]:
        preference = self._create("MatmulPreference")
        wanted: dict[int, c_uint32 | c_uint64] = {_MAX_WORKSPACE_BYTES: c_uint64(WORKSPACE_BYTES)}
        wanted[_REDUCTION_SCHEME_MASK] = c_uint32(_IN_COMPUTE_TYPE)
        wanted |= dict.fromkeys(_MIN_ALIGNMENTS, c_uint32(ALIGNMENT))
        for attribute, value in wanted.items():
            self._library("cublasLtMatmulPreferenceSetAttribute", preference, attribute, byref(value), sizeof(value))
        found, count = (Heuristic * MOST_ALGORITHMS)(), c_int()
        given: Sequence[Any] = (self._operation, *self._layouts, preference, MOST_ALGORITHMS, found, byref(count))
        self._library("cublasLtMatmulAlgoGetHeuristic", self._library.handle, *given)
        return [one for one in found[: count.value] if one.status == 0]

    def _create(self, kind: str, *arguments: int) -> c_void_p:
        made = c_void_p()
        self._library(f"cublasLt{kind}Create", byref(made), *arguments)
        self._made.append((kind, made))
        return made

    def __del__(self) -> None:
        while self._made:
            kind, made = self._made.pop()
            self._library(f"cublasLt{kind}Destroy", made)
