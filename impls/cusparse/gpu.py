"""Plans on cuSPARSE, and the search for its fastest variant."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_size_t, c_void_p
from itertools import product
from time import perf_counter
from typing import Any

import cupy
import numpy as np

from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.interfaces import Candidate, DeviceArray, Plan, Search
from spmark.impls.core.operators import random_operands
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.cusparse.library import ALGORITHMS, NON_TRANSPOSE, TRANSPOSE, library
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target

_FLOAT32_COMPUTE = 0


class CuSparsePlan(DevicePlan):
    """One variant of one operator.

    Parameters
    ----------
    arrays : tuple of device arrays, optional
        indptr, indices and values already on the device, so that variants share one upload.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        algorithm: str,
        preprocess: bool,
        arrays: tuple[DeviceArray, ...] | None = None,
    ) -> None:
        spmm = problem.op is Op.SPMM
        chosen = {"algorithm": algorithm} if spmm else {}
        super().__init__(problem, target, {**chosen, "preprocess": preprocess})
        self.stored = problem.matrix.nnz
        # All algorithms but alg3 add what thread blocks found in any order; asked for float32 sums or not, they add it
        # in float16 where that is the result's type.
        self.deterministic = not spmm or algorithm == "alg3"
        self.half_sums = not self.deterministic and problem.dtype is DType.FLOAT16
        with self.phase("upload"):
            self.arrays = arrays or upload_csr(self, problem)
        self._library = library()
        self._function = "cusparseSpMM" if spmm else "cusparseSDDMM"
        self._algorithm = ALGORITHMS[algorithm] if spmm else 0
        self._describe(problem)
        with self.phase("select"):
            self._buffer = self._allocate(preprocess)

    def _describe(self, problem: Problem) -> None:
        matrix, dtype, lib = problem.matrix, problem.dtype, self._library
        addresses = tuple(array.data.ptr for array in self.arrays)
        self._sparse = lib.csr(matrix.shape, matrix.nnz, addresses, dtype)
        self._dense = [lib.dense(shape, dtype) for shape in problem.operand_shapes]
        if problem.op is Op.SPMM:
            self._out = lib.dense((matrix.num_rows, problem.width), dtype)
            self._matrices = (self._sparse, self._dense[0], self._out)
            self._second = NON_TRANSPOSE
        else:
            self._out = self._sparse
            self._matrices = (self._dense[0], self._dense[1], self._sparse)
            self._second = TRANSPOSE

    def _arguments(self) -> tuple[Any, ...]:
        lib, (left, right, out) = self._library, self._matrices
        return (
            *(lib.handle, NON_TRANSPOSE, self._second, lib.one, left.pointer, right.pointer),
            *(lib.zero, out.pointer, _FLOAT32_COMPUTE, self._algorithm),
        )

    def _allocate(self, preprocess: bool) -> DeviceArray:
        lib = self._library
        lib("cusparseSetStream", lib.handle, c_void_p(cupy.cuda.get_current_stream().ptr))
        size = c_size_t()
        lib(f"{self._function}_bufferSize", *self._arguments(), byref(size))
        buffer = self.workspace((max(size.value, 16),), np.uint8)
        if preprocess:
            lib(f"{self._function}_preprocess", *self._arguments(), c_void_p(buffer.data.ptr))
        self.target.synchronize()
        return buffer

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """One call of the library."""
        lib = self._library
        lib("cusparseSetStream", lib.handle, c_void_p(cupy.cuda.get_current_stream().ptr))
        for descriptor, array in zip([*self._dense, self._out], [*operands, out], strict=True):
            descriptor.point_to(array.data.ptr)
        lib(self._function, *self._arguments(), c_void_p(self._buffer.data.ptr))


def upload_csr(plan: DevicePlan, problem: Problem) -> tuple[DeviceArray, ...]:
    """Upload indptr, indices and values; SDDMM's result takes the values' place, so those are only room."""
    matrix = problem.matrix
    return tuple(plan.upload(array) for array in (matrix.indptr, matrix.indices, problem.values))


def build_best(problem: Problem, target: Target, samples: int) -> Plan:
    """Build every variant on one upload, time them from cold caches, keep the one with the lowest median.

    Raises
    ------
    UnsupportedError
        No variant takes the problem; carries what the library said of each.
    """
    algorithms = ALGORITHMS if problem.op is Op.SPMM else ["default"]
    first: CuSparsePlan | None = None
    plans: list[CuSparsePlan] = []
    seen: list[Candidate] = []
    started = perf_counter()
    for algorithm, preprocess in product(algorithms, (False, True)):
        try:
            plan = CuSparsePlan(problem, target, algorithm, preprocess, first.arrays if first else None)
        except BuildError as error:
            seen.append(Candidate({"algorithm": algorithm, "preprocess": preprocess}, reason=str(error)))
            continue
        first = first or plan
        plans.append(plan)
    if first is None:
        raise UnsupportedError("; ".join(dict.fromkeys(candidate.reason for candidate in seen)))
    operands = [target.empty(o.shape, o.dtype.numpy) for o in random_operands(problem, 0)]
    for source, held in zip(random_operands(problem, 0), operands, strict=True):
        source.fill(held, cupy)
    out = target.empty(problem.out_shape, problem.dtype.numpy)
    runs = [lambda plan=plan: plan.run(operands, out) for plan in plans]
    stopwatch = CudaStopwatch(target.spec)
    stopwatch.batch(runs, 2, cold=True)
    times = stopwatch.batch(runs, samples, cold=True)
    best = plans[int(np.argmin(np.median(times, axis=1)))]
    best.phases_s = {**first.phases_s, **best.phases_s}
    best.phases_s["search"] = perf_counter() - started - sum(best.phases_s.values())
    best.device_bytes = best._buffer.nbytes + sum(array.nbytes for array in best.arrays)
    seen += [Candidate(plan.config, samples_us=tuple(map(float, t))) for plan, t in zip(plans, times, strict=True)]
    best.search = Search(len(seen), measured=len(plans), seen=tuple(seen))
    return best
