"""RGMS for maps of sparse convolutions, output-stationary: a thread block owns rows of Y and needs no atomics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows, why_not_rows
from spmark.impls.kernels.relational_rows import RGMS_ROWS, RelationalRowsPlan, rows_arguments
from spmark.impls.runtime.target import MAX_GRID, open_target
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class RgmsRows:
    """RGMS where each of up to 32 relations reaches a row once: rows with like relations share a thread block."""

    name: ClassVar[str] = "rgms_rows"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_ROWS,)

    rows: int = 64
    """Rows of Y of a thread block (64, 128)."""
    tile: int = 64
    """Columns of Y of a thread block (32, 64, 128; 128 with 64 rows, or where all of A's values are 1)."""
    depth: int = 32
    """Columns of X between two barriers (32, 64)."""

    def __post_init__(self) -> None:
        check_choices(self, **{name: RGMS_ROWS.space[name] for name in ("rows", "tile", "depth")})

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse float32, tiles without a kernel, matrices that have not this form, and widths beyond the grid."""
        if problem.dtype is not DType.FLOAT16:
            return f"expected float16, found {problem.dtype}"
        most = MAX_GRID[1] * self.tile
        if problem.width_out > most:
            return f"expected width_out of at most {most}, found {problem.width_out}"
        why = RGMS_ROWS.why_not(**rows_arguments(problem, self.rows, **self._schedule))
        return why or why_not_rows(problem.matrix)

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort rows by their relations and upload the neighbours."""
        own = Built()
        with own.phase("convert"):
            held = RelationalRows.of(problem.matrix, self.rows)
        plan = RelationalRowsPlan(problem, open_target(device), held, {"rows": self.rows}, **self._schedule)
        plan.charge(own.phases_s)
        return plan

    @property
    def _schedule(self) -> dict[str, int]:
        return {"tile": self.tile, "depth": self.depth}
