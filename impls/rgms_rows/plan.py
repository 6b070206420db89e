"""RGMS for maps of sparse convolutions, output-stationary: a thread block owns rows of Y and needs no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows, why_not_rows
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_rows import (
    RGMS_ROWS,
    RGMS_WIDE,
    RelationalRowsPlan,
    may_be_wide,
    rows_instance,
    shared_bytes,
)
from spmark.impls.runtime.target import ceil_div, open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate

_MANY_ROWS = 1 << 14
"""Rows of Y from which large tiles fill a GPU even where there are few relations."""
_MANY_ELEMENTS = 1 << 21
"""Elements of Y from which large tiles fill a GPU where there are many."""
_SPLITS = {1 << 13: 6, 1 << 15: 4}
"""Groups of relations up to so many rows of Y, where X is wide and tiles are large: more groups give thread blocks more
equal work. Set with both scans of MinkUNet in view."""
_TILES = {256: (128, 256, 4), 128: (128, 128, 3), 96: (128, 96, 3), 64: (128, 64, 4)}
"""Rows, columns and stages of the tiles of `RGMS_WIDE`, by the least columns of Y."""
_SMALLER = {256: _TILES[128], 128: (64, 64, 4)}
"""The same where a GPU would not be filled."""


@dataclass(frozen=True)
class RgmsRows:
    """RGMS where each of up to 32 relations reaches a row once: rows with like relations share a thread block."""

    name: ClassVar[str] = "rgms_rows"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_ROWS, RGMS_WIDE, SUM_PIECES)

    retired: ClassVar[Mapping[str, Any]] = dict.fromkeys(("rows", "tile", "depth", "splits"), 0)

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse float32, matrices that have not this form, and widths and tiles beyond the device."""
        if not problem.dtype.narrow:
            return f"expected 16-bit floats, found {problem.dtype}"
        rows, splits, schedule = _chosen(problem, device)
        why = too_wide(problem.width_out, schedule["tile"], "width_out") or why_not_rows(problem.matrix)
        shared = shared_bytes(rows_instance(problem, rows, **schedule), ceil_div(problem.matrix.relations, splits))
        if why is None and shared > (has := device.shared_bytes_per_block):
            return f"expected shared memory of {shared:,} bytes for a thread block, found {has:,}"
        return why

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort rows by their relations and upload the neighbours."""
        own, (rows, splits, schedule) = Built(), _chosen(problem, device)
        with own.phase("convert"):
            held = RelationalRows.of(problem.matrix, rows, splits)
        config = {"rows": rows, "splits": splits}
        plan = RelationalRowsPlan(problem, open_target(device), held, config, **schedule)
        plan.charge(own.phases_s)
        return plan


def _chosen(problem: RelationalProblem, device: DeviceSpec) -> tuple[int, int, dict[str, int]]:
    """Give the rows of Y of a thread block, the groups of relations (``splits``) and the schedule.

    Pieces cost time in proportion to the width of Y; what splitting saves grows with the product of the widths, and
    with the relations. The rules are those of layers of MinkUNet on an H200: of the drawn scan alone where warpgroups
    multiply and relations are many. Elsewhere a thread block's rows of X, which it gathers for itself, count as much as
    32 columns.
    """
    width_in, width_out, many = problem.width_in, problem.width_out, problem.matrix.relations > 8
    if may_be_wide(problem, device):
        fitting, num_rows = max(tile for tile in _TILES if tile <= width_out), problem.matrix.num_rows
        if many:
            filled = num_rows * width_out >= _MANY_ELEMENTS
            rows, tile, stages = _TILES[fitting] if filled else _SMALLER.get(fitting, _TILES[fitting])
            more = (splits for most, splits in _SPLITS.items() if num_rows <= most)
            splits = next(more, 3) if width_in >= 128 <= rows else 3
            return rows, splits, {"tile": tile, "stages": stages}
        if num_rows >= _MANY_ROWS:
            rows, tile, stages = {96: (128, 96, 3), 64: (64, 64, 4)}.get(fitting, (256, 128, 4))
            return rows, 1, {"tile": tile, "stages": stages}
        return 64, 3 if width_out >= 128 else 1, {"tile": 64, "stages": 4}
    tiles = [int(tile) for tile in RGMS_ROWS.space["tile"] if int(tile) <= 128]
    tile = min(reversed(tiles), key=lambda tile: ceil_div(width_out, tile) * (tile + 32))
    schedule = {"tile": tile, "depth": 32 if width_in <= 32 else 64}
    return 128 if many else 64, 3 if many or width_in * width_out >= 64 * 128 else 1, schedule
