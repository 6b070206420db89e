"""The launchers of RGMS for maps: thread blocks own rows of Y, 16 bits on the matrix unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.ordered_rows import OrderedRows, ordered_instances
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, Instance, KernelTemplate, TemplateValue, widest_aligned

_STAGES = 3
"""``kStages`` of the kernel."""
BLOCK_SIDE, BLOCK_ALIGNMENT = 64, 1024
"""``kBlockSide`` and ``kBlockAlignment`` of ``wgmma.cuh``."""
LAST = 1 << 16
"""``kLast`` of ``relational_steps.cuh``."""
_SLABS = 1 << 17
"""The bit ``kSlabs`` of `RGMS_WIDE`."""
RESERVED_BYTES = 1024
"""Shared memory that the system takes of each thread block."""
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
RGMS_WIDE = KernelTemplate(
    Path(__file__).parent / "relational_wide.cu",
    "rgms_wide",
    {
        "T": NARROW,
        "tile": (64, 96, 128, 256),
        "rows": (64, 128, 256),
        "stages": (3, 4),
        "threads": (128, 256, 512),
    },
)
"""By warpgroups, on sm_90 alone (see `may_be_wide`)."""


class RelationalRowsPlan(DevicePlan):
    """Y by `RGMS_ROWS` or `RGMS_WIDE`; where all of A's values are 1, they are neither held nor read.

    Where relations are split into groups, the pieces of a row are rounded to the dtype. A second launch adds them up in
    order, in float32.

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
        - ``depth``: columns of X between two barriers (32, 64), of `RGMS_ROWS`;
        - ``stages``: of X and W in shared memory (3, 4), of `RGMS_WIDE`.

    Raises
    ------
    BuildError
        There is no kernel for the schedule.
    """

    def __init__(
        self, problem: RelationalProblem, target: Target, held: RelationalRows, config: Config, **schedule: int
    ) -> None:
        instance, width = rows_instance(problem, held.tile, **schedule), problem.width_out
        wide = instance.template is RGMS_WIDE
        # What adds up pieces moves as much at once as the width allows.
        widest = max(int(instance.values.get("vector", 8)), widest_aligned(width, problem.dtype))
        super().__init__(problem, target, {**config, **schedule}, alignment=widest * problem.dtype.itemsize)
        self.stored = held.stored
        self._kernel, *around = self.load([instance, *ordered_instances(width, problem.dtype, problem.dtype)])
        tiles_of_columns = ceil_div(width, schedule["tile"])
        self._shared_bytes = shared_bytes(instance, int(np.diff(held.starts).max(initial=0)))
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            bounds, steps = held.starts, held.steps
            if wide:
                each = target.spec.shared_bytes_per_sm // (self._shared_bytes + RESERVED_BYTES)
                held, first = held.dealt(max(1, each * target.spec.num_sms // tiles_of_columns))
                bounds = np.stack([held.starts[first], first], axis=1).astype(np.int32)
                slabs = (held.neighbours >= 0).reshape(-1, held.tile // BLOCK_SIDE, BLOCK_SIDE).any(axis=2)
                steps = held.steps[:, 0] + slabs @ (_SLABS << np.arange(slabs.shape[1], dtype=np.int32))
                steps[held.starts[1:] - 1] |= LAST
            real = held.places >= 0
            rows = held.places[real]
            use = row_use(problem.matrix.num_rows, [rows])
            valued = bool(instance.values.get("valued"))
            values = np.zeros(held.positions.shape if valued else 0, problem.dtype.numpy)
            if valued:
                values[held.positions >= 0] = problem.values[held.positions[held.positions >= 0]]
        with self.phase("upload"):
            self._around = OrderedRows(self, use, rows, width, around, pieces=problem.dtype)
            self.half_sums = use.shared.size > 0
            targets = np.full(held.places.shape, NO_ROW, np.int32)
            targets[real] = self._around.targets
            arrays = bounds, steps, held.neighbours, *(() if wide else (values,)), targets
            self._arrays = [self.upload(array) for array in arrays]
        self._grid = (len(bounds) - 1, tiles_of_columns, 1)
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Compute, and add up the rows that tiles share."""
        args = (*self._sizes, *self._arrays, *operands, out, self._around.sums)
        self._kernel.launch(self._grid, args, self._shared_bytes, overlap=True)
        self._around.after(out)


def rows_instance(problem: RelationalProblem, rows: int, tile: int, **schedule: int) -> Instance:
    """Give the kernel for thread blocks of so many rows of Y and a schedule, which may not exist."""
    own: dict[str, TemplateValue] = {"T": C_TYPES[problem.dtype], "tile": tile, "rows": rows, **schedule}
    if "stages" in schedule:
        return RGMS_WIDE.instance(**own, threads=2 * rows)
    vector = 8 if _in_steps_of_8(problem) else 1
    valued = not _all_ones(problem)
    many = rows * tile * (1 + valued) > 128 * 128
    return RGMS_ROWS.instance(**own, vector=vector, valued=valued, threads=256 if many else 128)


def may_be_wide(problem: RelationalProblem, device: DeviceSpec) -> bool:
    """Tell whether `RGMS_WIDE` has a problem on a device: 16 bits, values of one, widths from 64 in steps of 8."""
    wide = min(problem.width_in, problem.width_out) >= BLOCK_SIDE and _in_steps_of_8(problem)
    return device.has_wgmma and problem.dtype.narrow and wide and _all_ones(problem)


def _all_ones(problem: RelationalProblem) -> bool:
    return bool((problem.dtype.numbers(problem.values) == 1).all())


def _in_steps_of_8(problem: RelationalProblem) -> bool:
    return problem.width_in % 8 == 0 and problem.width_out % 8 == 0


def shared_bytes(instance: Instance, steps: int) -> int:
    """Give the dynamic shared memory of a thread block whose tile has so many steps."""
    values = instance.values
    rows, tile = int(values["rows"]), int(values["tile"])
    if instance.template is RGMS_WIDE:
        blocks = rows // BLOCK_SIDE + ceil_div(tile, BLOCK_SIDE)
        return BLOCK_ALIGNMENT + 2 * int(values["stages"]) * blocks * BLOCK_SIDE**2
    depth = int(values["depth"])
    staged = 2 * _STAGES * (rows * (depth + 8) + depth * (tile + 8))
    return staged + 4 * (steps * (rows + 2) + rows)


def _axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give every schedule whose tile and step are no wider than operands, nor much narrower, the smallest first."""
    width = problem.width_out
    return {
        "rows": RGMS_ROWS.space["rows"],
        "splits": (1, 2, 3),
        "tile": [tile for tile in map(int, RGMS_ROWS.space["tile"]) if tile == 32 or tile < 2 * width <= 8 * tile],
        "depth": (32,) if problem.width_in <= 32 else (32, 64),
    }


def _wide_axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give the tiles that Y fills. Large ones have the multiprocessor to themselves, or are two with fewer stages."""
    tiles = [(64, 64, 4), (128, 64, 4), (128, 96, 3), (256, 96, 4), (128, 128, 3), (256, 128, 4), (128, 256, 4)]
    return {
        "rows": [
            {"rows": rows, "tile": tile, "stages": stages}
            for rows, tile, stages in tiles
            if tile <= problem.width_out and (problem.width_out <= 2 * tile or tile == 256)
        ],
        "splits": (1, 2, 3, 4, 6),
    }


RELATIONAL_ROWS = KernelFamily(
    mark="rows",
    axes=_axes,
    opened=lambda problem, target: OneFormat(
        ("rows", "splits"),
        lambda form: RelationalRows.of(problem.matrix, form["rows"], form["splits"]),
        lambda held, form, schedule, _: RelationalRowsPlan(problem, target, held, form, **schedule),
    ),
    kernel=lambda problem, config: rows_instance(problem, **taken_apart(config, ["splits"])[1]),
)
"""For problems in 16 bits whose matrix has the form (`spmark.impls.formats.relational_rows.why_not_rows`)."""
RELATIONAL_WIDE = replace(RELATIONAL_ROWS, mark="stages", axes=_wide_axes)
"""For those of them that `may_be_wide`."""
