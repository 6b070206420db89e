"""Plans of both operators over CSR as it comes, for float64 on a GPU, which no search takes.

A `PlainProblem` has no schedule to choose: one kernel serves each operator.
"""

from __future__ import annotations

from pathlib import Path

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Op, PlainProblem
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
