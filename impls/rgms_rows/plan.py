"""RGMS for maps of sparse convolutions, output-stationary: a thread block owns rows of Y and needs no atomics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows, why_not_rows
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_rows import RGMS_ROWS, RelationalRowsPlan, rows_arguments, shared_bytes
from spmark.impls.runtime.target import MAX_GRID, ceil_div, open_target
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class RgmsRows:
    """RGMS where each of up to 32 relations reaches a row once: rows with like relations share a thread block."""

    name: ClassVar[str] = "rgms_rows"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_ROWS, SUM_PIECES)

    rows: int = 0
    """Rows of Y of a thread block (64, 128, 256); 0 takes 128 where Y is wide and relations are many."""
    tile: int = 0
    """Columns of Y of a thread block (32, 64, 96, 128, 256); 0 takes what wastes little of the last block."""
    depth: int = 0
    """Columns of X between two barriers (32, 64); 0 takes 64 where X has more than 32."""
    splits: int = 0
    """Groups of relations, whose pieces of Y are added up in order (1 to 4); 0 takes 3 where widths are large."""

    def __post_init__(self) -> None:
        axes = {name: (0, *RGMS_ROWS.space[name]) for name in ("rows", "tile", "depth")}
        check_choices(self, **axes, splits=range(5))

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse float32, tiles without a kernel, matrices that have not this form, and widths beyond the grid."""
        if not problem.dtype.narrow:
            return f"expected 16-bit floats, found {problem.dtype}"
        rows, splits, schedule = self._chosen(problem)
        most = MAX_GRID[1] * schedule["tile"]
        if problem.width_out > most:
            return f"expected width_out of at most {most}, found {problem.width_out}"
        why = RGMS_ROWS.why_not(**rows_arguments(problem, rows, **schedule)) or why_not_rows(problem.matrix)
        if why is not None:
            return why
        shared = shared_bytes(rows, ceil_div(problem.matrix.relations, splits), **schedule)
        if shared > (has := device.shared_bytes_per_block):
            return f"expected shared memory of {shared:,} bytes for a thread block, found {has:,}; take fewer rows"
        return None

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort rows by their relations and upload the neighbours."""
        own, (rows, splits, schedule) = Built(), self._chosen(problem)
        with own.phase("convert"):
            held = RelationalRows.of(problem.matrix, rows, splits)
        config = {"rows": rows, "splits": splits}
        plan = RelationalRowsPlan(problem, open_target(device), held, config, **schedule)
        plan.charge(own.phases_s)
        return plan

    def _chosen(self, problem: RelationalProblem) -> tuple[int, int, dict[str, int]]:
        """Give rows, splits and the schedule.

        A thread block gathers its rows of X for itself, which counts as much as 32 columns. Pieces cost time in
        proportion to the width of Y; what splitting saves grows with the product of the widths. The limits are those
        of 24 layers of MinkUNet on an H200.
        """
        width_in, width_out = problem.width_in, problem.width_out
        tiles = [int(tile) for tile in RGMS_ROWS.space["tile"] if int(tile) <= 128]
        tile = self.tile or min(reversed(tiles), key=lambda tile: ceil_div(width_out, tile) * (tile + 32))
        schedule = {"tile": tile, "depth": self.depth or (32 if width_in <= 32 else 64)}
        many = width_out >= 128 and problem.matrix.relations > 8
        large = many and RGMS_ROWS.why_not(**rows_arguments(problem, 128, **schedule)) is None
        return (
            self.rows or (128 if large else 64),
            self.splits or (3 if width_in * width_out >= 64 * 128 else 1),
            schedule,
        )
