"""The launchers of RGMS for maps: thread blocks own rows of Y, float16 on the matrix unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.ordered_rows import OrderedRows, ordered_instances
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, KernelTemplate, TemplateValue, widest_aligned

_STAGES = 3
"""``kStages`` of the kernel."""
RGMS_ROWS = KernelTemplate(
    Path(__file__).parent / "relational_rows.cu",
    "rgms_rows",
    {
        "T": NARROW,
        "tile": (32, 64, 96, 128, 256),
        "rows": (64, 128, 256),
        "depth": (32, 64),
        "vector": (1, 8),
        "valued": (False, True),
        "threads": (128, 256),
    },
)


class RelationalRowsPlan(DevicePlan):
    """Y by `RGMS_ROWS`; where all of A's values are 1, they are neither held nor read.

    Where relations are split into groups, the pieces of a row are added up in order by a second launch.

    Parameters
    ----------
    problem : RelationalProblem
        In 16 bits.
    target : Target
    held : RelationalRows
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    **schedule : int
        - ``tile``: columns of Y of a thread block (32, 64, 96, 128, 256);
        - ``depth``: columns of X between two barriers (32, 64).

    Raises
    ------
    BuildError
        There is no kernel for the schedule.
    """

    def __init__(
        self, problem: RelationalProblem, target: Target, held: RelationalRows, config: Config, **schedule: int
    ) -> None:
        instance, width = RGMS_ROWS.instance(**rows_arguments(problem, held.tile, **schedule)), problem.width_out
        # What adds up pieces moves as much at once as the width allows.
        widest = max(int(instance.values["vector"]), widest_aligned(width, problem.dtype))
        super().__init__(problem, target, {**config, **schedule}, alignment=widest * problem.dtype.itemsize)
        self.stored = held.stored
        self._kernel, *around = self.load([instance, *ordered_instances(width, problem.dtype)])
        most = int(np.diff(held.starts).max())
        self._shared_bytes = shared_bytes(held.tile, most, **schedule)
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            real = held.places >= 0
            rows = held.places[real]
            use = row_use(problem.matrix.num_rows, [rows])
            values = np.zeros(held.positions.shape if instance.values["valued"] else 0, problem.dtype.numpy)
            if values.size:
                values[held.positions >= 0] = problem.values[held.positions[held.positions >= 0]]
        with self.phase("upload"):
            self._around = OrderedRows(self, use, rows, width, around)
            targets = np.full(held.places.shape, NO_ROW, np.int32)
            targets[real] = self._around.targets
            self._arrays = [self.upload(array) for array in (held.starts, held.steps, held.neighbours, values, targets)]
        self._grid = (len(held.places), ceil_div(width, schedule["tile"]), 1)
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Compute, and add up the rows that tiles share."""
        args = (*self._sizes, *self._arrays, *operands, out, self._around.sums)
        self._kernel.launch(self._grid, args, self._shared_bytes)
        self._around.after(out)


def rows_arguments(problem: RelationalProblem, rows: int, **schedule: int) -> dict[str, TemplateValue]:
    """Give the arguments of `RGMS_ROWS` for thread blocks of so many rows of Y and a schedule."""
    vector = 8 if problem.width_in % 8 == 0 and problem.width_out % 8 == 0 else 1
    valued = bool((problem.dtype.numbers(problem.values) != 1).any())
    own: dict[str, TemplateValue] = {"T": C_TYPES[problem.dtype], "rows": rows, "vector": vector, "valued": valued}
    many = rows * schedule["tile"] * (1 + valued) > 128 * 128
    return {**own, **schedule, "threads": 256 if many else 128}


def shared_bytes(rows: int, steps: int, tile: int, depth: int) -> int:
    """Give the dynamic shared memory of a thread block whose tile has so many steps."""
    return 2 * _STAGES * (rows * (depth + 8) + depth * (tile + 8)) + 4 * (steps * (rows + 2) + rows)


def _axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give every schedule whose tile and step are no wider than operands, nor much narrower, the smallest first."""
    width = problem.width_out
    return {
        "rows": RGMS_ROWS.space["rows"],
        "splits": (1, 2, 3),
        "tile": [tile for tile in map(int, RGMS_ROWS.space["tile"]) if tile == 32 or tile < 2 * width <= 8 * tile],
        "depth": (32,) if problem.width_in <= 32 else (32, 64),
    }


RELATIONAL_ROWS = KernelFamily(
    mark="rows",
    axes=_axes,
    opened=lambda problem, target: OneFormat(
        ("rows", "splits"),
        lambda form: RelationalRows.of(problem.matrix, form["rows"], form["splits"]),
        lambda held, form, schedule, _: RelationalRowsPlan(problem, target, held, form, **schedule),
    ),
    kernel=lambda problem, config: RGMS_ROWS.instance(**rows_arguments(problem, **taken_apart(config, ["splits"])[1])),
)
"""For problems in float16 whose matrix has the form (`spmark.impls.formats.relational_rows.why_not_rows`)."""
