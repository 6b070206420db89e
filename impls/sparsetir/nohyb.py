"""SparseTIR(no-hyb): the schedule that the paper compiles for a matrix in plain CSR, its own baseline.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.2.1 and figure 13: eight rows a thread block, 32 lanes over the columns, two columns a lane. The schedule is
fixed, without a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.csr_rows import LANES, SPMM_CSR_ROWS, CsrRowsPlan
from spmark.impls.runtime.target import MAX_GRID, open_target
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class SparseTirNoHyb:
    """SpMM over CSR with SparseTIR's fixed schedule."""

    name: ClassVar[str] = "sparsetir_nohyb"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_CSR_ROWS,)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        most = MAX_GRID[1] * LANES * coarsening(problem.width)
        return f"expected J of at most {most:,}, found {problem.width:,}" if problem.width > most else None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload the matrix; the kernel comes from the cache or is compiled."""
        return CsrRowsPlan(problem, open_target(device), coarsening(problem.width))


def coarsening(width: int) -> int:
    """Give the columns of a lane for J: two, or one where J is below 64."""
    return 2 if width >= 2 * LANES else 1
