"""Plans on cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DeviceError, UnsupportedError
from spmark.impls.core.interfaces import Built, Config, DeviceArray, Plan
from spmark.impls.core.problem import DType, Problem
from spmark.impls.cublas.light import ALIGNMENT, Product
from spmark.impls.cublas.plan import SAMPLE, THREADS
from spmark.impls.runtime.gemm import WORKSPACE_BYTES, Gemm
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.timer import PlanTimer


class DenseSpmm(DevicePlan):
    """C = A B with A dense."""

    def __init__(self, problem: Problem, target: Target) -> None:
        super().__init__(problem, target, {})
        matrix = problem.matrix
        with self.phase("convert"):
            dense = _dense(problem)
        with self.phase("upload"):
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

    with own.phase("search"):
        race = Race(build, PlanTimer(problem, target.spec))
        exhaustive(race, [{"algorithm": number} for number in range(len(product.algorithms))])
        _, best = race.finish()
    best.charge(own.phases_s)
    best.search = race.describe()
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
        with self.phase("compile"):
            instance = SAMPLE.instance(T=C_TYPES[problem.dtype], scaled=problem.scaled, threads=THREADS)
            (self._sample,) = target.load([instance])
        with self.phase("convert"):
            rows = matrix.rows_of_entries()
        with self.phase("upload"):
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
