"""The launchers of RGMS for maps: thread blocks own rows of Y, float16 on the matrix unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_rows import MAX_STEPS, RelationalRows
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.ordered_rows import OrderedRows, ordered_instances
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, KernelTemplate, TemplateValue, widest_aligned

_STAGES = 3
"""``kStages`` of the kernel."""
_LAST = 1 << 16
"""``kLast`` of the kernel."""
_REGISTERS = 86
"""Of a thread, besides its sums, about."""
_RESERVED_BYTES = 1024
"""Shared memory that the system takes of each thread block."""
RGMS_ROWS = KernelTemplate(
    Path(__file__).parent / "relational_rows.cu",
    "rgms_rows",
    {
        "T": NARROW,
        "tile": (32, 64, 96, 128),
        "rows": (64, 128),
        "depth": (32, 64),
        "vector": (1, 8),
        "valued": (False, True),
        "threads": (128, 256),
    },
    max_registers=255,
    max_spill_bytes=32,  # a compiler that fits a round number of registers puts pointers aside
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
        - ``tile``: columns of Y of a thread block (32, 64, 96, 128);
        - ``depth``: columns of X between two barriers (32, 64);
        - ``threads``: of a thread block (128, 256).

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
        with self.phase("compile"):
            self._kernel, *around = target.load([instance, *ordered_instances(width, problem.dtype)])
        with self.phase("convert"):
            bounds, ends, places = held.parts(resident_blocks(problem, target.spec, held.tile, **schedule))
            steps = held.steps.copy()
            steps[ends, 0] |= _LAST
            real = places >= 0
            rows = places[real]
            use = row_use(problem.matrix.num_rows, [rows])
            values = np.zeros(held.positions.shape if instance.values["valued"] else 0, problem.dtype.numpy)
            if values.size:
                values[held.positions >= 0] = problem.values[held.positions[held.positions >= 0]]
        self._shared_bytes = shared_bytes(held.tile, int(np.diff(bounds[:, 0]).max(initial=0)), **schedule)
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("upload"):
            self._around = OrderedRows(self, use, rows, width, around)
            targets = np.full(places.shape, NO_ROW, np.int32)
            targets[real] = self._around.targets
            self._arrays = [self.upload(array) for array in (bounds, steps, held.neighbours, values, targets)]
        self._grid = (len(bounds) - 1, ceil_div(width, schedule["tile"]), 1)
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Compute, add up the rows that parts share, and clear those without edges."""
        args = (*self._sizes, *self._arrays, *operands, out, self._around.sums)
        self._kernel.launch(self._grid, args, self._shared_bytes)
        self._around.after(out)


def rows_arguments(problem: RelationalProblem, rows: int, **schedule: int) -> dict[str, TemplateValue]:
    """Give the arguments of `RGMS_ROWS` for thread blocks of so many rows of Y and a schedule."""
    vector = 8 if problem.width_in % 8 == 0 and problem.width_out % 8 == 0 else 1
    valued = bool((problem.dtype.numbers(problem.values) != 1).any())
    own: dict[str, TemplateValue] = {"T": C_TYPES[problem.dtype], "rows": rows, "vector": vector, "valued": valued}
    return {**own, **schedule}


def shared_bytes(rows: int, steps: int, tile: int, depth: int, threads: int) -> int:
    """Give the dynamic shared memory of a thread block that has so many steps."""
    return 2 * _STAGES * (rows * (depth + 8) + depth * (tile + 8)) + 4 * steps * (rows + 2)


def resident_blocks(problem: RelationalProblem, device: DeviceSpec, rows: int, **schedule: int) -> int:
    """Give the thread blocks that a device holds at once for each tile of columns, about."""
    arguments = rows_arguments(problem, rows, **schedule)
    threads, tile = schedule["threads"], schedule["tile"]
    registers = threads * _REGISTERS + rows * tile * (1 + bool(arguments["valued"]))
    by_shared = device.shared_bytes_per_sm // (shared_bytes(rows, MAX_STEPS, **schedule) + _RESERVED_BYTES)
    each = max(1, min(device.registers_per_sm // registers, by_shared))
    return max(1, each * device.num_sms // ceil_div(problem.width_out, tile))


def _axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give every schedule whose tile and step are no wider than operands, nor much narrower, the smallest first."""
    width = problem.width_out
    return {
        "rows": RGMS_ROWS.space["rows"],
        "splits": (1, 2, 3),
        "tile": [tile for tile in map(int, RGMS_ROWS.space["tile"]) if tile == 32 or tile < 2 * width <= 8 * tile],
        "depth": (32,) if problem.width_in <= 32 else (32, 64),
        "threads": RGMS_ROWS.space["threads"],
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
