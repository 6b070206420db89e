"""SpMM straight from CSR, with a schedule by rule or searched.

Its family: Huang, Dai, Wang and Yang, "GE-SpMM", SC 2020; Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep
Learning", SC 2020; RA-SpMM's direct kernel. The README says which of their ideas the kernel has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.direct_spmm import ROWS, SPMM_DIRECT, DirectPlan, is_offered, usual_schedule
from spmark.impls.runtime.target import open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class Direct:
    """SpMM over CSR as it comes, a group of lanes for one or a few rows."""

    name: ClassVar[str] = "direct"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_DIRECT,)

    lanes: int = 0
    """Threads of a group (4, 8, 16, 32); 0 takes up to 512 bytes of a row of B, and less where rows are short or
    the problem is small (`usual_schedule`)."""
    vectors: int = 0
    """Loads of a lane side by side (1, or 2 of 16 bytes); 0 takes 2 where J has room for them and the problem
    is not small."""
    parts: int = 0
    """Parts of a group, each of ``lanes`` threads, which share a row (1, 2, 4, 8; with one load of 16 bytes, 4 rows of
    B on their way, one row a group and at most 32 threads); 0 takes several in small
    problems."""
    unroll: int = 0
    """Rows of B that a lane has on their way (4; 2 with loads of 16 bytes; 8 for single rows, with one such load and 8
    lanes or more); 0 takes 4, or 8 in small problems."""
    rows: int = 0
    """Rows of a group (1, 2, 4); 0 takes the most that together have 4 non-zeros in the mean, at least 1."""
    longest: int = 0
    """Non-zeros of a row beyond which a block takes it; 0 takes four times the mean of the rows that are not
    empty, twice that mean in small problems."""
    search: bool = False
    """Measure some twenty schedules that agree with what is pinned; otherwise the rules choose."""

    def __post_init__(self) -> None:
        named = [field.name for field in fields(self) if field.name in SPMM_DIRECT.space]
        check_choices(self, rows=(0, *ROWS), **{name: (0, *SPMM_DIRECT.space[name]) for name in named})
        if self.longest < 0:
            raise ValueError(f"expected longest of at least 1, or 0 to choose it, found {self.longest}")

    @property
    def _pinned(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "search" and value}

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid, and pinned tunables whose loads J does not allow."""
        chosen = self.schedule(problem)
        if not is_offered(problem.dtype, chosen):
            names = ("vector", "vectors", "lanes", "parts", "unroll", "rows")
            return (
                "expected tunables that a kernel exists for (vectors: 2, unroll: 2 and 8 with loads of 16 bytes; "
                "parts with loads of 16 bytes, vectors: 1, unroll: 4, rows: 1 and at most 32 lanes in all), found "
                + ", ".join(f"{name}: {chosen[name]}" for name in names)
            )
        return too_wide(problem.width, chosen["lanes"] * chosen["vector"] * chosen["vectors"])

    def schedule(self, problem: Problem) -> dict[str, Any]:
        """Give the pinned tunables, and the others by their rules."""
        return usual_schedule(problem, self._pinned)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where that is asked for and there are non-zeros and a GPU; list the long rows and upload."""
        if not self.search:
            return DirectPlan(problem, open_target(device), {}, **self.schedule(problem))
        from spmark.impls.direct.search import fastest_direct

        return fastest_direct(problem, device, self._pinned)
