"""The launcher of RGMS for graphs: thread blocks own rows of Y with like sets of relations, float16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import DType, openings
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_sets import CHUNK, RelationalSets
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.family import Axes, Build, KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.ordered_rows import OrderedRows, ordered_instances
from spmark.impls.kernels.relational_hyb import tiles_within
from spmark.impls.kernels.relational_pieces import may_take_pieces
from spmark.impls.kernels.relational_rows import BLOCK_ALIGNMENT, BLOCK_SIDE, LAST, RESERVED_BYTES
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import Instance, KernelTemplate, widest_aligned

_WARP = 32
_SCHEDULE = ("tile", "together")
_REGISTERS = 16
"""Of a thread, besides what holds sums and products, about."""
_MOST_SUMS_BYTES = 1 << 28
_FEW_EDGES = 1 << 20
"""Up to which small thread blocks may pay, since there are few of them."""
RGMS_SETS = KernelTemplate(
    Path(__file__).parent / "relational_sets.cu",
    "rgms_sets",
    {"tile": (32, 64, 128), "depth": (32, 64, 128), "together": (False, True), "threads": (128, 256)},
)


class RelationalSetsPlan(DevicePlan):
    """Y by `RGMS_SETS`; the pieces of a row with many edges are added up in order by a second launch.

    Parameters
    ----------
    problem : RelationalProblem
        That `may_share_sets`.
    target : Target
    held : RelationalSets
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    **schedule : int
        - ``tile``: columns of Y of a thread block (32, 64, 128);
        - ``together``: multiply by warpgroups (`may_multiply_together`), by default not.

    Raises
    ------
    BuildError
        There is no kernel for the schedule.
    """

    def __init__(
        self, problem: RelationalProblem, target: Target, held: RelationalSets, config: Config, **schedule: int
    ) -> None:
        instance, width = sets_instance(problem, held.warps, **schedule), problem.width_out
        alignment = widest_aligned(width, problem.dtype) * problem.dtype.itemsize
        super().__init__(problem, target, {**config, **schedule}, alignment=alignment)
        self.stored, self.half_sums = held.stored, True
        self._kernel, *around = self.load([instance, *ordered_instances(width, problem.dtype)])
        self._shared_bytes = shared_bytes(instance)
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            xp = target.xp
            places = target.download(held.places)
            real = places >= 0
            rows = places[real]
            use = row_use(problem.matrix.num_rows, [rows])
            tags = xp.full(held.rows.shape, 0xFFFF0000, np.uint32)
            edges = held.positions >= 0
            values = xp.asarray(problem.values)[held.positions[edges]].view(np.uint16)
            tags[edges] = held.rows[edges].astype(np.uint32) << 16 | values
            steps = xp.where(held.ends, held.steps | LAST, held.steps).astype(np.int32)
        with self.phase("upload"):
            self._around = OrderedRows(self, use, rows, width, around)
            targets = np.full(places.shape, NO_ROW, np.int32)
            targets[real] = self._around.targets
            arrays = held.bounds, steps, held.chunk_starts, held.chunk_steps, held.indices, tags, targets
            self._arrays = [self.upload(array) for array in arrays]
        self._grid = (len(held.bounds) - 1, ceil_div(width, schedule["tile"]), 1)
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Compute, add up the pieces of rows that have several, and clear rows without edges."""
        args = (*self._sizes, *self._arrays, *operands, out, self._around.sums)
        self._kernel.launch(self._grid, args, self._shared_bytes, overlap=True)
        self._around.after(out)


def sets_instance(problem: RelationalProblem, warps: int, tile: int, together: int = False) -> Instance:
    """Give the kernel for so many warps of a thread block and a tile of columns of Y."""
    depth = next(depth for depth in map(int, RGMS_SETS.space["depth"]) if depth >= problem.width_in)
    return RGMS_SETS.instance(tile=tile, depth=depth, together=bool(together), threads=_WARP * warps)


def may_share_sets(problem: RelationalProblem) -> bool:
    """Tell whether `RGMS_SETS` has a problem: float16, widths in steps of 8, X no wider than its kernels."""
    return problem.dtype is DType.FLOAT16 and may_take_pieces(problem)


def may_multiply_together(problem: RelationalProblem, device: DeviceSpec) -> bool:
    """Tell whether warpgroups may multiply: on a device that has wgmma, where widths fill half of its 128 or more."""
    return device.has_wgmma and min(problem.width_in, problem.width_out) > 64


def shared_bytes(instance: Instance) -> int:
    """Give the dynamic shared memory of a thread block."""
    tile, depth, threads = (int(instance.values[name]) for name in ("tile", "depth", "threads"))
    stages = 2 if depth == 128 else 3  # ``kStages`` of the kernel
    of_x = threads // _WARP * CHUNK * (depth + 8)
    if instance.values["together"]:
        return BLOCK_ALIGNMENT + 2 * stages * (4 * BLOCK_SIDE**2 + of_x)
    return 2 * stages * (depth * (tile + 8) + of_x)


def resident_blocks(problem: RelationalProblem, device: DeviceSpec, warps: int, **schedule: int) -> int:
    """Give the thread blocks that a device holds at once for each tile of columns, about: a thread block is a run."""
    instance = sets_instance(problem, warps, **schedule)
    registers = _WARP * warps * (_REGISTERS + schedule["tile"] + int(instance.values["depth"]))
    by_shared = device.shared_bytes_per_sm // (shared_bytes(instance) + RESERVED_BYTES)
    each = max(1, min(device.registers_per_sm // registers, by_shared))
    return max(1, each * device.num_sms // ceil_div(problem.width_out, schedule["tile"]))


def _axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give every form and tile; fewer where edges are many, and rows of relations apart unless they are too many."""
    relation, rows, _ = problem.matrix.edges
    pieces = np.count_nonzero(openings(relation) | openings(rows))
    few = problem.matrix.nnz <= _FEW_EDGES
    return {
        "apart": (False, True) if 4 * pieces * problem.width_out <= _MOST_SUMS_BYTES else (False,),
        "piece": (256, 128) if few else (256,),
        "warps": (8, 4) if few else (8,),
        "tile": tiles_within(problem.width_out)[:-3:-1],
    }


def _together_axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give the forms of all, with the one tile."""
    return {**_axes(problem, pinned), "tile": (128,), "together": (True,)}


def _opened(problem: RelationalProblem, target: Target) -> Build:
    """Give what builds plans: a form depends on how many thread blocks are at work at once, and so on the schedule."""

    def convert(form: Config) -> RelationalSets:
        schedule, _ = taken_apart(form, _SCHEDULE)
        blocks = resident_blocks(problem, target.spec, form["warps"], **schedule)
        return RelationalSets.of(
            problem.matrix, form["piece"], form["warps"], blocks, apart=form["apart"], xp=target.xp
        )

    def build(held: RelationalSets, form: Config, *_: Any) -> RelationalSetsPlan:
        schedule, facts = taken_apart(form, _SCHEDULE)
        return RelationalSetsPlan(problem, target, held, facts, **schedule)

    return OneFormat(("apart", "piece", "warps", *_SCHEDULE), convert, build)


RELATIONAL_SETS = KernelFamily(
    mark="piece",
    axes=_axes,
    opened=_opened,
    kernel=lambda problem, config: sets_instance(problem, **taken_apart(config, ("warps", *_SCHEDULE))[0]),
)
"""For problems that `may_share_sets`."""
RELATIONAL_SETS_TOGETHER = replace(RELATIONAL_SETS, mark="together", axes=_together_axes)
"""For those of them that `may_multiply_together`."""
