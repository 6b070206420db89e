"""Row-major products by cuBLAS, which a CUDA graph can capture; CuPy refuses its own bindings meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_OF_GROUPS = {
    "cublasGemmGroupedBatchedEx": (
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_int, c_void_p),
        *(c_void_p, c_void_p, c_int, c_void_p, c_int, c_void_p, c_int),
    ),
}
"""cuBLAS 12.5 and newer."""


@cache
def library(groups: bool = False) -> VendorLibrary:
    """Load cuBLAS and make this process's handle, once.

    Parameters
    ----------
    groups : bool
        With the function for groups of products.

    Raises
    ------
    DeviceError
        cuBLAS cannot be loaded, or is older than 12.5 and has no such function.
    """
    functions = {"create": "cublasCreate_v2", "describe": "cublasGetStatusString"}
    signatures = _SIGNATURES | (_OF_GROUPS if groups else {})
    made = VendorLibrary("cublas", signatures, NOT_SUPPORTED, OUT_OF_MEMORY, **functions)
    # Without this, partial sums of a split K are rounded to the result's type before they are added.
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
        self._type, self._out_type = (dtype.cuda_type for dtype in types)
        # cuBLAS is column-major: it computes the transposed product, with the operands swapped.
        self._transposes = (_TRANSPOSE if right_transposed else _NO_TRANSPOSE, _NO_TRANSPOSE)
        self._n, self._k = n, k
        self._leading = (k if right_transposed else n, k, n)

    def __call__(self, products: Iterable[tuple[DeviceArray, DeviceArray, DeviceArray]]) -> None:
        """Enqueue products, each of left, right and out, on the current stream."""
        lib, (ld_right, ld_left, ld_out) = self._library, self._leading
        _take_stream(lib, self._workspace)
        for left, right, out in products:
            lib(
                *("cublasGemmEx", lib.handle, *self._transposes, self._n, left.shape[0], self._k, lib.one),
                *(c_void_p(right.data.ptr), self._type, ld_right, c_void_p(left.data.ptr), self._type, ld_left),
                *(lib.zero, c_void_p(out.data.ptr), self._out_type, ld_out, COMPUTE_32F, _DEFAULT_ALGORITHM),
            )


class GroupedGemm:
    """Row-major products out_i (m_i x n) = left_i (m_i x k) right_i (k x n), all in one call.

    Parameters
    ----------
    plan : DevicePlan
        Owner of workspaces.
    dtype : DType
        Of operands and results; sums are float32.
    parts : sequence of (int, device array, device array)
        i, left_i and out_i of each product.
    shape : (int, int, int)
        Of the rights: their number, k and n.

    Raises
    ------
    DeviceError
        cuBLAS is older than 12.5.
    """

    def __init__(
        self,
        plan: DevicePlan,
        dtype: DType,
        parts: Sequence[tuple[int, DeviceArray, DeviceArray]],
        shape: tuple[int, ...],
    ) -> None:
        (_, k, n), count = shape, len(parts)
        self._library, self._type, self._count = library(groups=True), dtype.cuda_type, count
        self._workspace = plan.workspace((WORKSPACE_BYTES,), np.uint8)
        offsets = [number * k * n * dtype.itemsize for number, _, _ in parts]
        lefts, outs = [left.data.ptr for _, left, _ in parts], [out.data.ptr for _, _, out in parts]
        held = (plan.upload(np.array(each, np.uint64)) for each in (offsets, lefts, outs))
        self._offsets, self._lefts, self._outs = held
        self._rights = plan.workspace((count,), np.uint64)
        # What the library reads on the host, while the call is made. It is column-major: operands are swapped.
        heights = np.array([left.shape[0] for _, left, _ in parts], np.int32)
        self._none, self._n, self._k, self._each = (np.full(count, one, np.int32) for one in (_NO_TRANSPOSE, n, k, 1))
        self._heights, self._ones, self._zeros = heights, np.ones(count, np.float32), np.zeros(count, np.float32)

    def __call__(self, right: DeviceArray) -> None:
        """Enqueue all products with the matrices of ``right``, (number, k, n), on the current stream."""
        if self._count == 0:
            return
        lib = self._library
        cupy.add(self._offsets, np.uint64(right.data.ptr), out=self._rights)
        _take_stream(lib, self._workspace)
        none, n, k, heights, each = (a.ctypes.data for a in (self._none, self._n, self._k, self._heights, self._each))
        one, zero = self._ones.ctypes.data, self._zeros.ctypes.data
        lib(
            *("cublasGemmGroupedBatchedEx", lib.handle, none, none, n, heights, k, one),
            *(self._rights.data.ptr, self._type, n, self._lefts.data.ptr, self._type, k),
            *(zero, self._outs.data.ptr, self._type, n, self._count, each, COMPUTE_32F),
        )


def _take_stream(lib: VendorLibrary, workspace: DeviceArray) -> None:
    lib("cublasSetStream_v2", lib.handle, c_void_p(cupy.cuda.get_current_stream().ptr))
    # The library drops its workspace when a stream is set, so the workspace is set after it.
    lib("cublasSetWorkspace_v2", lib.handle, c_void_p(workspace.data.ptr), workspace.nbytes)
