"""Plans on cuSPARSE, and the search for its fastest variant.

The library is called through ctypes: CuPy binds neither preprocess nor SDDMM.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

import numpy as np

from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.interfaces import Built, Config, DeviceArray, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.vendor import VendorLibrary
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.tuning.race import fastest_plan

NON_TRANSPOSE, TRANSPOSE, _FLOAT32_COMPUTE = 0, 1, 0
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


def dense(shape: tuple[int, ...], dtype: DType) -> Descriptor:
    """Describe a row-major dense matrix of (rows, columns); its address comes with every run."""
    # The library wants an address that is not null; the first run sets the real one.
    return Descriptor("DnMat", "DnMat", *shape, shape[1], c_void_p(256), dtype.cuda_type, _ORDER_ROW)


class CuSparsePlan(DevicePlan):
    """One call of the library: a variant of an operator.

    Parameters
    ----------
    arrays : sequence of device arrays, optional
        indptr, indices and values already on the device, so that variants share one upload.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        algorithm: str,
        preprocess: bool,
        arrays: Sequence[DeviceArray] = (),
    ) -> None:
        spmm = problem.op is Op.SPMM
        chosen: dict[str, Any] = {"algorithm": algorithm} if spmm else {}
        super().__init__(problem, target, {**chosen, "preprocess": preprocess})
        # All algorithms except alg3 add the sums of thread blocks in any order. Sums of a result of 16 bits they add in
        # these 16 bits, even where float32 sums are asked for.
        self.deterministic = not spmm or algorithm == "alg3"
        self.half_sums = not self.deterministic and problem.dtype.narrow
        matrix, lib = problem.matrix, library()
        # For SDDMM the values only reserve memory, since the result replaces them
        held = self.share(arrays, (matrix.indptr, matrix.indices, problem.values))
        self.values = held[2]  # preprocessing looks at the pattern alone
        sparse = csr(matrix.shape, matrix.nnz, [array.data.ptr for array in held], problem.dtype)
        operands = [dense(shape, problem.dtype) for shape in problem.operand_shapes]
        out = dense(problem.out_shape, problem.dtype) if spmm else sparse
        self._left, self._right = (sparse, *operands) if spmm else operands
        self._pointed, self._function = [*operands, out], "cusparseSpMM" if spmm else "cusparseSDDMM"
        second = NON_TRANSPOSE if spmm else TRANSPOSE
        self._arguments = (
            *(lib.handle, NON_TRANSPOSE, second, lib.one, self._left.pointer, self._right.pointer),
            *(lib.zero, out.pointer, _FLOAT32_COMPUTE, ALGORITHMS[algorithm] if spmm else 0),
        )
        with self.phase("select"):
            size = c_size_t()
            self._call("_bufferSize", byref(size))
            self._buffer = self.workspace((max(size.value, 16),), np.uint8)
            if preprocess:
                self._call("_preprocess", c_void_p(self._buffer.data.ptr))
            self.target.synchronize()

    def _call(self, step: str, last: Any) -> None:
        lib = library()
        lib("cusparseSetStream", lib.handle, c_void_p(cupy.cuda.get_current_stream().ptr))
        lib(f"{self._function}{step}", *self._arguments, last)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Call the library once."""
        for descriptor, array in zip(self._pointed, [*operands, out], strict=True):
            descriptor.point_to(array.data.ptr)
        self._call("", c_void_p(self._buffer.data.ptr))


def build_best(problem: Problem, target: Target) -> Plan:
    """Build every variant on one upload, race them, keep the fastest.

    Raises
    ------
    UnsupportedError
        Every variant refuses the problem; the error carries the library's words for each.
    """
    own, is_taken = Built(), False
    with own.phase("upload"):
        arrays = [target.upload(one) for one in (problem.matrix.indptr, problem.matrix.indices, problem.values)]

    def build(config: Config) -> CuSparsePlan:
        nonlocal is_taken
        plan = CuSparsePlan(problem, target, **config, arrays=arrays)
        is_taken = True
        return plan

    algorithms = ALGORITHMS if problem.op is Op.SPMM else ("default",)
    try:
        configs = [{"algorithm": one, "preprocess": early} for one in algorithms for early in (False, True)]
        best = fastest_plan(problem, target.spec, build, configs)
    except BuildError as error:
        if is_taken:
            raise
        raise UnsupportedError(str(error)) from error
    best.charge(own.phases_s)
    return best
