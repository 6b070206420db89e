"""SpMM straight from CSR with a schedule by rule: the kernel of the formats' searches, by itself and without a search.

Its family: Huang, Dai, Wang and Yang, "GE-SpMM", SC 2020; Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep
Learning", SC 2020; RA-SpMM's direct kernel. The README says which of their ideas the kernel has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.choices import check_choices
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.direct_spmm import (
    LANES,
    ROWS,
    SHORT,
    SPMM_DIRECT,
    DirectPlan,
    load_of,
    loads_whole,
    mean_length,
    usual_length,
)
from spmark.impls.runtime.target import MAX_GRID, open_target
from spmark.impls.runtime.template import KernelTemplate

_UNROLL = 4
_MOST_LANES = {1: 32, 2: 16}
"""Threads of a group at most, by its loads side by side: a tile is 512 bytes of a row of B."""


@dataclass(frozen=True)
class Direct:
    """SpMM over CSR as it comes, a group of lanes for one or a few rows."""

    name: ClassVar[str] = "direct"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_DIRECT,)

    lanes: int = 0
    """Threads of a group (4, 8, 16, 32); 0 takes as many as J needs, up to 512 bytes of a row of B."""
    vectors: int = 0
    """Loads of a lane side by side (1, or 2 of 16 bytes); 0 takes 2 where a mean row has fewer than 8 non-zeros."""
    unroll: int = 0
    """Rows of B that a lane has on their way (4, or 2 with loads of 16 bytes); 0 takes 4."""
    rows: int = 0
    """Rows of a group (1, 2, 4); 0 takes the most that together have 4 non-zeros in the mean, at least 1."""
    longest: int = 0
    """Non-zeros of a row beyond which a block takes it; 0 takes four mean rows."""

    def __post_init__(self) -> None:
        check_choices(self, lanes=(0, *LANES), vectors=(0, 1, 2), unroll=(0, 2, 4), rows=(0, *ROWS))
        if self.longest < 0:
            raise ValueError(f"expected longest of at least 1, or 0 to choose it, found {self.longest}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid, and pinned tunables whose loads J does not allow."""
        if not loads_whole(problem.width, problem.dtype) and (self.vectors == 2 or self.unroll == 2):
            width = f"J = {problem.width} of {problem.dtype}"
            return f"expected J to allow loads of 16 bytes for vectors: 2 or unroll: 2, found {width}"
        chosen = self.schedule(problem)
        most = MAX_GRID[1] * chosen["lanes"] * chosen["vector"] * chosen["vectors"]
        return f"expected J of at most {most}, found {problem.width}" if problem.width > most else None

    def schedule(self, problem: Problem) -> dict[str, Any]:
        """Give the pinned tunables, and the others by their rules."""
        width, mean = problem.width, mean_length(problem.matrix)
        vector = load_of(width, problem.dtype)
        several = mean < SHORT and loads_whole(width, problem.dtype) and width >= 2 * LANES[0] * vector
        vectors = self.vectors or (2 if several else 1)
        most = _MOST_LANES[vectors]
        return {
            "vector": vector,
            "vectors": vectors,
            "lanes": self.lanes or next((n for n in LANES if n == most or n * vectors * vector >= width), most),
            "unroll": self.unroll or _UNROLL,
            "rows": self.rows or max(n for n in ROWS if n == 1 or n * mean <= _UNROLL),
            "longest": self.longest or usual_length(problem.matrix),
        }

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """List the long rows and upload."""
        return DirectPlan(problem, open_target(device), {}, **self.schedule(problem))
