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
from spmark.impls.kernels.relational_rows import RGMS_ROWS, RelationalRowsPlan, rows_instance, shared_bytes
from spmark.impls.runtime.target import ceil_div, open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class RgmsRows:
    """RGMS where each of up to 32 relations reaches a row once: rows with like relations share a thread block."""

    name: ClassVar[str] = "rgms_rows"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_ROWS, SUM_PIECES)

    retired: ClassVar[Mapping[str, Any]] = dict.fromkeys(("rows", "tile", "depth", "splits"), 0)

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse float32, matrices that have not this form, and widths and tiles beyond the device."""
        if not problem.dtype.narrow:
            return f"expected 16-bit floats, found {problem.dtype}"
        rows, splits, schedule = _chosen(problem)
        why = too_wide(problem.width_out, schedule["tile"], "width_out") or why_not_rows(problem.matrix)
        shared = shared_bytes(rows_instance(problem, rows, **schedule), ceil_div(problem.matrix.relations, splits))
        if why is None and shared > (has := device.shared_bytes_per_block):
            return f"expected shared memory of {shared:,} bytes for a thread block, found {has:,}"
        return why

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort rows by their relations and upload the neighbours."""
        own, (rows, splits, schedule) = Built(), _chosen(problem)
        with own.phase("convert"):
            held = RelationalRows.of(problem.matrix, rows, splits)
        config = {"rows": rows, "splits": splits}
        plan = RelationalRowsPlan(problem, open_target(device), held, config, **schedule)
        plan.charge(own.phases_s)
        return plan


def _chosen(problem: RelationalProblem) -> tuple[int, int, dict[str, int]]:
    """Give the rows of Y of a thread block, the groups of relations (``splits``) and the schedule.

    A thread block gathers its rows of X for itself, which counts as much as 32 columns. Pieces cost time in proportion
    to the width of Y; what splitting saves grows with the product of the widths. The limits are those of 24 layers of
    MinkUNet on an H200.
    """
    width_in, width_out = problem.width_in, problem.width_out
    tiles = [int(tile) for tile in RGMS_ROWS.space["tile"] if int(tile) <= 128]
    tile = min(reversed(tiles), key=lambda tile: ceil_div(width_out, tile) * (tile + 32))
    schedule = {"tile": tile, "depth": 32 if width_in <= 32 else 64}
    large = width_out >= 128 and problem.matrix.relations > 8
    return 128 if large else 64, 3 if width_in * width_out >= 64 * 128 else 1, schedule
