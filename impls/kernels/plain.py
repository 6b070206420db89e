"""Plans of both operators over CSR as it comes, for float64, which no search takes.

A `PlainProblem` has no schedule to choose: one kernel serves each operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.interfaces import Built, DeviceArray
from spmark.impls.core.operands import check_operands
from spmark.impls.core.problem import Op, PlainProblem
from spmark.impls.formats.threads import equal_shares, run_all
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import MAX_GRID, Target, ceil_div
from spmark.impls.runtime.template import KernelTemplate

LANES = (4, 8, 16, 32)
THREADS = 128
_SPACE = {"lanes": LANES, "threads": (THREADS,)}
SPMM_PLAIN = KernelTemplate(Path(__file__).parent / "plain.cu", "spmm_plain", _SPACE)
SDDMM_PLAIN = KernelTemplate(Path(__file__).parent / "plain.cu", "sddmm_plain", _SPACE)


class PlainPlan(OneLaunchPlan):
    """Either operator by `SPMM_PLAIN` or `SDDMM_PLAIN`; deterministic, and every element is written.

    Raises
    ------
    UnsupportedError
        J is beyond the grid.
    """

    def __init__(self, problem: PlainProblem, target: Target) -> None:
        pattern, width, spmm = problem.matrix, problem.width, problem.op is Op.SPMM
        lanes = next((n for n in LANES if n >= width), LANES[-1])
        if spmm and ceil_div(width, lanes) > MAX_GRID[1]:
            raise UnsupportedError(f"expected J of at most {MAX_GRID[1] * lanes:,}, found {width:,}")
        super().__init__(problem, target, {"lanes": lanes})
        self._load((SPMM_PLAIN if spmm else SDDMM_PLAIN).instance(lanes=lanes, threads=THREADS))
        groups = ceil_div(pattern.num_rows if spmm else pattern.nnz, THREADS // lanes)
        sizes = (pattern.num_rows, width) if spmm else (pattern.num_rows, pattern.nnz, width, problem.scaled)
        arrays = (pattern.indptr, pattern.indices, problem.factors)
        self._arrange((groups, ceil_div(width, lanes) if spmm else 1, 1), sizes, arrays)
        self.values = self._args[-1]


class HostPlainPlan(Built):
    """Either operator by the loops of `plain_loops`, on several cores."""

    def __init__(self, problem: PlainProblem) -> None:
        super().__init__(stored=problem.matrix.nnz)
        pattern = problem.matrix
        self._shapes, self._dtype = (problem.operand_shapes, problem.out_shape), problem.dtype
        with self.phase("compile"):
            from spmark.impls.kernels import plain_loops

            self._loop = plain_loops.spmm if problem.op is Op.SPMM else plain_loops.sddmm
        self._pattern = pattern.indptr, pattern.indices
        self.values = problem.factors
        self._shares = equal_shares(pattern.indptr)
        self.device_bytes = sum(array.nbytes for array in (*self._pattern, self.values))

    def run(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Compute the complete result."""
        check_operands(*self._shapes, self._dtype, operands, out, device="cpu")
        tasks = zip(self._shares[:-1], self._shares[1:], strict=True)
        run_all(self._loop, ((start, stop, *self._pattern, self.values, *operands, out) for start, stop in tasks))
