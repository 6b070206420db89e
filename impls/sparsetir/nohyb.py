"""SparseTIR(no-hyb): the schedule that the paper compiles for a matrix in plain CSR, its own baseline.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.2.1 and figure 13: eight rows a thread block, 32 lanes over the columns, two columns a lane. The schedule is
fixed, without a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div, open_target, too_wide
from spmark.impls.runtime.template import C_TYPES, KernelTemplate

LANES = 32
"""Threads of a row."""
SPMM_CSR_ROWS = KernelTemplate(
    Path(__file__).parent / "kernels" / "csr_rows.cu",
    "spmm_csr_rows",
    {"T": ("float", "half"), "coarsen": (1, 2), "threads": (256,)},
    max_registers=48,
)


@dataclass(frozen=True)
class SparseTirNoHyb:
    """SpMM over CSR with SparseTIR's fixed schedule."""

    name: ClassVar[str] = "sparsetir_nohyb"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_CSR_ROWS,)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        return too_wide(problem.width, LANES * coarsening(problem.width))

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload the matrix; the kernel comes from the cache or is compiled."""
        return CsrRowsPlan(problem, open_target(device), coarsening(problem.width))


def coarsening(width: int) -> int:
    """Give the columns of a lane for J: two, or one where J is below 64."""
    return 2 if width >= 2 * LANES else 1


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
