"""Plans on cuBLAS and cuBLASLt, whose choice of an algorithm CuPy does not bind.

NVIDIA, cuBLAS documentation, "Using the cuBLASLt API". Numbers are those of ``cublasLt.h`` of CUDA 12 and 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DeviceError, UnsupportedError
from spmark.impls.core.interfaces import Built, Config, DeviceArray, Plan
from spmark.impls.core.problem import DType, Problem
from spmark.impls.cublas.plan import SAMPLE, THREADS
from spmark.impls.runtime.gemm import COMPUTE_32F, NOT_SUPPORTED, OUT_OF_MEMORY, WORKSPACE_BYTES, Gemm
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.runtime.vendor import VendorLibrary
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.tuning.race import fastest_plan

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
        self._operation = self._create("MatmulDesc", COMPUTE_32F, DType.FLOAT32.cuda_type)
        # cuBLASLt is column-major: it computes the transposed product, with the operands swapped.
        shapes = ((n, k), (k, m), (n, m))
        layouts = [self._create("MatrixLayout", dtype.cuda_type, rows, cols, rows) for rows, cols in shapes]
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


class DenseSpmm(DevicePlan):
    """C = A B with A dense."""

    def __init__(self, problem: Problem, target: Target) -> None:
        super().__init__(problem, target, {})
        matrix = problem.matrix
        with self.phase("convert"):
            dense = _dense(problem)
        self._matrix = self.upload(dense)
        self.stored, types = dense.size, (problem.dtype, problem.dtype)
        self._gemm = Gemm(self, problem.width, matrix.num_cols, types)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Enqueue one GEMM."""
        self._gemm([(self._matrix, operands[0], out)])


class LightSpmm(DevicePlan):
    """C = A B with A dense, by one algorithm of cuBLASLt; plans of one problem share matrix and workspace.

    Parameters
    ----------
    product : Product
    number : int
        Place of the algorithm among ``product.algorithms``.
    shared : pair of device arrays
        A, dense and row-major, and a workspace of `WORKSPACE_BYTES`.
    """

    def __init__(
        self, problem: Problem, target: Target, product: Product, number: int, shared: tuple[DeviceArray, DeviceArray]
    ) -> None:
        super().__init__(problem, target, {"algorithm": number}, alignment=ALIGNMENT)
        self.stored = problem.matrix.num_rows * problem.matrix.num_cols
        self._product, self._algorithm = product, product.algorithms[number]
        self._matrix, self._workspace = shared
        self.device_bytes = sum(array.nbytes for array in shared)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Enqueue one product."""
        addresses = (array.data.ptr for array in (self._matrix, operands[0], out))
        workspace, stream = self._workspace.data.ptr, cupy.cuda.get_current_stream().ptr
        self._product.run(self._algorithm, *addresses, workspace=workspace, stream=stream)


def build_light_best(problem: Problem, target: Target) -> Plan:
    """Race every algorithm that cuBLASLt proposes on one upload; give the plan of the fastest.

    Raises
    ------
    UnsupportedError
        cuBLASLt cannot be loaded, or has no algorithm for the problem.
    """
    own, matrix = Built(), problem.matrix
    try:
        product = Product(matrix.num_rows, problem.width, matrix.num_cols, problem.dtype)
    except DeviceError as error:
        raise UnsupportedError(str(error)) from error
    with own.phase("convert"):
        dense = _dense(problem)
    with own.phase("upload"):
        shared = target.upload(dense), target.empty((WORKSPACE_BYTES,), np.uint8)

    def build(config: Config) -> LightSpmm:
        return LightSpmm(problem, target, product, config["algorithm"], shared)

    configs = [{"algorithm": number} for number in range(len(product.algorithms))]
    best = fastest_plan(problem, target.spec, build, configs)
    best.charge(own.phases_s)
    return best


def _dense(problem: Problem) -> NDArray[Any]:
    dense = np.zeros(problem.matrix.shape, problem.dtype.numpy)
    dense[problem.matrix.rows_of_entries(), problem.matrix.indices] = problem.values
    return dense


class DenseSddmm(DevicePlan):
    """X Y^T in full, then its entries at A's non-zeros."""

    def __init__(self, problem: Problem, target: Target) -> None:
        super().__init__(problem, target, {})
        matrix = problem.matrix
        instance = SAMPLE.instance(T=C_TYPES[problem.dtype], scaled=problem.scaled, threads=THREADS)
        (self._sample,) = self.load([instance])
        with self.phase("convert"):
            rows = matrix.rows_of_entries()
        self._arrays = [self.upload(array) for array in (rows, matrix.indices, problem.factors)]
        self._product = self.workspace(matrix.shape, np.float32)  # float32: the result is scaled before it is rounded
        self.stored = matrix.num_rows * matrix.num_cols
        self._sizes = np.int32(matrix.nnz), np.int32(matrix.num_cols)
        self._grid = (ceil_div(matrix.nnz, THREADS), 1, 1)
        types = problem.dtype, DType.FLOAT32
        self._gemm = Gemm(self, matrix.num_cols, problem.width, types, right_transposed=True)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Enqueue a GEMM and a gather."""
        self._gemm([(operands[0], operands[1], self._product)])
        self._sample.launch(self._grid, (*self._sizes, *self._arrays, self._product, out))
