"""Plans on cuSPARSE, and the search for its fastest variant."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Any

import numpy as np

from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.interfaces import Built, Config, DeviceArray, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.cusparse.library import ALGORITHMS, NON_TRANSPOSE, TRANSPOSE, csr, dense, library
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.timer import PlanTimer

_FLOAT32_COMPUTE = 0


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
        arrays: Sequence[DeviceArray] | None = None,
    ) -> None:
        spmm = problem.op is Op.SPMM
        chosen: dict[str, Any] = {"algorithm": algorithm} if spmm else {}
        super().__init__(problem, target, {**chosen, "preprocess": preprocess})
        self.stored = problem.matrix.nnz
        # All algorithms except alg3 add the sums of thread blocks in any order. Sums of a result of 16 bits they add in
        # these 16 bits, even where float32 sums are asked for.
        self.deterministic = not spmm or algorithm == "alg3"
        self.half_sums = not self.deterministic and problem.dtype.narrow
        matrix, lib = problem.matrix, library()
        with self.phase("upload"):  # for SDDMM the values only reserve memory, since the result replaces them
            self.arrays = arrays or [self.upload(one) for one in (matrix.indptr, matrix.indices, problem.values)]
        self.values = self.arrays[2]  # preprocessing looks at the pattern alone
        sparse = csr(matrix.shape, matrix.nnz, [array.data.ptr for array in self.arrays], problem.dtype)
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
        with own.phase("search"):
            race = Race(build, PlanTimer(problem, target.spec))
            exhaustive(race, [{"algorithm": one, "preprocess": early} for one in algorithms for early in (False, True)])
            _, best = race.finish()
    except BuildError as error:
        if is_taken:
            raise
        raise UnsupportedError(str(error)) from error
    own.phases_s["search"] -= sum(best.phases_s.values())
    best.charge(own.phases_s)
    best.device_bytes += sum(array.nbytes for array in arrays)
    best.search = race.describe()
    return best
