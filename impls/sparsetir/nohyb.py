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
from spmark.impls.kernels.csr_spmm import CsrSpmmPlan
from spmark.impls.runtime.target import Target, open_target, too_wide
from spmark.impls.runtime.template import ELEMENTS, KernelTemplate

LANES, THREADS = 32, 256
"""Threads of a row and of a block."""
SPMM_CSR_ROWS = KernelTemplate(
    Path(__file__).parent / "kernels" / "csr_rows.cu",
    "spmm_csr_rows",
    {"T": ELEMENTS, "lanes": (LANES,), "coarsen": (1, 2), "threads": (THREADS,)},
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
        return planned(problem, open_target(device), coarsening(problem.width))


def coarsening(width: int) -> int:
    """Give the columns of a lane for J: two, or one where J is below 64."""
    return 2 if width >= 2 * LANES else 1


def planned(problem: Problem, target: Target, coarsen: int) -> Plan:
    """Plan C = A B by `SPMM_CSR_ROWS`, with ``coarsen`` columns of a lane, `LANES` apart."""
    schedule = {"lanes": LANES, "coarsen": coarsen, "threads": THREADS}
    return CsrSpmmPlan(problem, target, SPMM_CSR_ROWS, LANES * coarsen, {}, **schedule)
