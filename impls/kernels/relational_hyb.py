"""The launchers of RGMS over the 3-D hyb: 16 bits on the matrix unit, float32 on ordinary cores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_hyb import RelationalHyb, widths_of
from spmark.impls.formats.row_use import RowUse, row_use
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.ordered_rows import SUM_PIECES, OrderedRows, ordered_instances
from spmark.impls.kernels.shared_rows import SharedRows, shared_instances
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Kernel, Target, ceil_div
from spmark.impls.runtime.template import (
    C_TYPES,
    NARROW,
    Instance,
    KernelTemplate,
    TemplateValue,
    loads_of,
    widest_aligned,
)

_THREADS = 128
_SOURCE = Path(__file__).parent / "relational_hyb.cu"
TILES = (32, 64, 128)
"""Columns of Y of a thread block in float16."""
_FORM = ("slots", "widest")
"""Tunables of the format."""
FLOAT_TILE = 32
"""Columns of Y of a thread block in float32: the lanes of a warp."""
RGMS_HYB = KernelTemplate(
    _SOURCE,
    "rgms_hyb",
    {
        "T": NARROW,
        "tile": TILES,
        "slots": (64, 128, 256),
        "depth": (32, 64),
        "vector": (1, 8),
        "ordered": (False, True),
        "threads": (_THREADS,),
    },
)
RGMS_HYB_FLOAT = KernelTemplate(
    _SOURCE, "rgms_hyb_float", {"slots": (32, 64), "ordered": (False, True), "threads": (_THREADS,)}
)


class RelationalHybPlan(DevicePlan):
    """Y by `RGMS_HYB` or `RGMS_HYB_FLOAT`.

    A row of Y that one ELL row has alone is written whole. For the others there are two ways: they are cleared and
    added into atomically (`SharedRows`), or a second launch adds them up in order (`OrderedRows`).

    Parameters
    ----------
    problem : RelationalProblem
    target : Target
    held : RelationalHyb
        Of arrays on the target.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    apart : bool
        Launch the groups of each relation by themselves, one relation after the other.
    **schedule : int
        - ``ordered``: add up shared rows in order;
        - ``tile``: columns of Y of a thread block (32, 64, 128), of 16 bits alone;
        - ``depth``: columns of X between two barriers (32, 64), of 16 bits alone.

    Raises
    ------
    BuildError
        There is no kernel for the schedule, or for so many slots.
    """

    def __init__(
        self,
        problem: RelationalProblem,
        target: Target,
        held: RelationalHyb,
        config: Config,
        *,
        apart: bool = False,
        **schedule: int,
    ) -> None:
        template, arguments = _template(problem, held.slots, schedule)
        instance, width = template.instance(**arguments), problem.width_out
        # What clears and finishes rows of Y moves as much at once as the width allows.
        widest = max(int(instance.values.get("vector", 1)), widest_aligned(width, problem.dtype))
        super().__init__(problem, target, {**config, **schedule}, alignment=widest * problem.dtype.itemsize)
        self.stored = held.stored
        with self.phase("convert"):
            xp = target.xp
            real = xp.flatnonzero(held.rows >= 0)
            rows = held.rows[real]
            use = row_use(problem.matrix.num_rows, [rows])
            values = xp.zeros(held.positions.shape, problem.dtype.numpy)
            edges = held.positions >= 0
            values[edges] = xp.asarray(problem.values)[held.positions[edges]]
        ordered = bool(schedule["ordered"])
        self.deterministic = ordered or use.shared.size == 0
        with self.phase("compile"):
            self._kernel, *around = target.load([instance, *adding_instances(problem, use, ordered)])
        with self.phase("upload"):
            self._around, to = adding_up(self, problem, use, rows, around)
            targets = xp.full(held.rows.size, NO_ROW, np.int32)
            targets[real] = to
            self._arrays = [self.upload(array) for array in (held.groups, held.indices, values, targets)]
        self._overlaps = self._around.clears
        tile = int(instance.values["tile"]) if problem.dtype.narrow else FLOAT_TILE
        self._shared_bytes = 0
        if problem.dtype.narrow:
            depth = int(instance.values["depth"])
            of_x, of_w = depth + 8, depth * (tile + 8)
            self._shared_bytes = 4 * (held.slots * of_x + of_w)
            self._kernel.allow_shared(self._shared_bytes)
        ends = [0, held.groups.shape[0]]
        if apart:
            ends = np.searchsorted(held.groups[:, 0], np.arange(held.relations + 1)).tolist()
        tiles = ceil_div(width, tile)
        self._grids = [(np.int32(first), (end - first, tiles, 1)) for first, end in pairwise(ends) if end > first]
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Clear what is added into or has no edges, compute, and finish the rows that several ELL rows share."""
        self._around.before(out)
        for number, (first, grid) in enumerate(self._grids):
            args = (first, *self._sizes, *self._arrays, *operands, out, self._around.sums)
            self._kernel.launch(grid, args, self._shared_bytes, overlap=self._overlaps and number == 0)
        self._around.after(out)


def adding_instances(problem: RelationalProblem, use: RowUse, ordered: bool) -> list[Instance]:
    """Give the kernels that add up rows which pieces share, in order or atomically; a plan loads them with its own."""
    width, dtype = problem.width_out, problem.dtype
    if ordered:
        return ordered_instances(width, dtype)
    return shared_instances(use.shared.size > 0, width, dtype, loads_of(width, 8)[0])


def adding_up(
    plan: DevicePlan, problem: RelationalProblem, use: RowUse, rows: DeviceArray, kernels: Sequence[Kernel]
) -> tuple[OrderedRows | SharedRows, DeviceArray]:
    """Give the launches around a grid by the loaded `adding_instances`, and the target of each piece of ``rows``."""
    width, dtype = problem.width_out, problem.dtype
    if kernels[0].instance.template is SUM_PIECES:
        ordered = OrderedRows(plan, use, rows, width, kernels)
        return ordered, ordered.targets
    shared = SharedRows(plan, use, width, dtype, kernels)
    return shared, use.targets(rows, shared.numbered)


def tiles_within(width_out: int) -> tuple[int, ...]:
    """Give the tiles of which none but the last may be wider than Y."""
    return tuple(tile for tile in TILES if tile < 2 * width_out) or TILES[:1]


def _axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give slots, widths and schedules, those of the paper's kernels first; tiles and steps no wider than operands.

    The paper has groups of 256 elements on the matrix unit, 128 for sparse convolution, and 32 on ordinary cores.
    """
    widths = widths_of(problem.matrix)[::-1]
    if not problem.dtype.narrow:
        return {"slots": RGMS_HYB_FLOAT.space["slots"], "widest": widths, "ordered": (False, True)}
    slots = (256, 128, 64) if widths[0] > 1 else (128, 64, 256)
    return {
        "slots": slots,
        "tile": tiles_within(problem.width_out),
        "widest": widths,
        "depth": (32,) if problem.width_in <= 32 else (64, 32),
        "ordered": (False, True),
    }


def _instance(problem: RelationalProblem, config: Config) -> Instance:
    form, schedule = taken_apart(config, _FORM)
    template, arguments = _template(problem, form["slots"], schedule)
    return template.instance(**arguments)


RELATIONAL_HYB = KernelFamily(
    mark="slots",
    axes=_axes,
    opened=lambda problem, target: OneFormat(
        _FORM,
        lambda form: RelationalHyb.of(problem.matrix, **form, xp=target.xp),
        lambda held, form, schedule, _: RelationalHybPlan(problem, target, held, form, **schedule),
    ),
    kernel=_instance,
)


def _template(
    problem: RelationalProblem, slots: int, schedule: Config
) -> tuple[KernelTemplate, dict[str, TemplateValue]]:
    """Give the kernel of a schedule (see `RelationalHybPlan`), and its arguments, which it may not have."""
    common = {"slots": slots, **schedule, "threads": _THREADS}
    if not problem.dtype.narrow:
        return RGMS_HYB_FLOAT, common
    vector = 8 if problem.width_in % 8 == 0 and problem.width_out % 8 == 0 else 1
    return RGMS_HYB, {"T": C_TYPES[problem.dtype], **common, "vector": vector}
