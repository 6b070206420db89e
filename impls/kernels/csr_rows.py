"""The launcher of CSR SpMM by rows, the schedule of SparseTIR without composable formats."""

from __future__ import annotations

from pathlib import Path

from spmark.impls.core.problem import Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, KernelTemplate

LANES = 32
"""Threads of a row."""
SPMM_CSR_ROWS = KernelTemplate(
    Path(__file__).parent / "csr_rows.cu",
    "spmm_csr_rows",
    {"T": ("float", "half"), "coarsen": (1, 2), "threads": (256,)},
    max_registers=48,
)


class CsrRowsPlan(OneLaunchPlan):
    """C = A B by `SPMM_CSR_ROWS`; the matrix is used as it comes.

    Parameters
    ----------
    problem : Problem
    target : Target
    coarsen : int
        Columns of a lane, `LANES` apart.
    """

    def __init__(self, problem: Problem, target: Target, coarsen: int) -> None:
        matrix = problem.matrix
        super().__init__(problem, target, {"coarsen": coarsen})
        self.stored = matrix.nnz
        threads = int(SPMM_CSR_ROWS.space["threads"][0])
        self._load(SPMM_CSR_ROWS.instance(T=C_TYPES[problem.dtype], coarsen=coarsen, threads=threads))
        grid = (ceil_div(matrix.num_rows, threads // LANES), ceil_div(problem.width, LANES * coarsen), 1)
        self._arrange(grid, (matrix.num_rows, problem.width), (matrix.indptr, matrix.indices, problem.values))
        self.values = self._args[-1]
