"""The launcher of RGMS over pieces: rows of X are summed on ordinary cores, and multiplied on the matrix unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_pieces import RelationalPieces
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.family import KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.relational_hyb import TILES, adding_instances, adding_up, tiles_within
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, Instance, KernelTemplate

_THREADS = 256
_DEPTHS = (32, 64, 128)
PIECES = 64
"""``kPieces`` of the kernel."""
RGMS_PIECES = KernelTemplate(
    Path(__file__).parent / "relational_pieces.cu",
    "rgms_pieces",
    {"T": NARROW, "tile": TILES, "depth": _DEPTHS, "ordered": (False, True), "threads": (_THREADS,)},
)


class RelationalPiecesPlan(DevicePlan):
    """Y by `RGMS_PIECES`. A row of Y that is one piece is written whole; the others as `RelationalHybPlan` has it.

    Parameters
    ----------
    problem : RelationalProblem
        That `may_take_pieces`.
    target : Target
    held : RelationalPieces
        Of arrays on the target.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    **schedule : int
        - ``tile``: columns of Y of a thread block (32, 64, 128);
        - ``ordered``: add up shared rows in order.

    Raises
    ------
    BuildError
        There is no kernel for the schedule.
    """

    def __init__(
        self, problem: RelationalProblem, target: Target, held: RelationalPieces, config: Config, **schedule: int
    ) -> None:
        instance, width = pieces_instance(problem, **schedule), problem.width_out
        super().__init__(problem, target, {**config, **schedule}, alignment=16)
        self.stored, self.half_sums = held.indices.size, True
        with self.phase("convert"):
            real = held.rows >= 0
            rows = held.rows[real]
            use = row_use(problem.matrix.num_rows, [rows])
            values = target.xp.asarray(problem.values)[held.positions]
        ordered = bool(schedule["ordered"])
        self.deterministic = ordered or use.shared.size == 0
        with self.phase("compile"):
            self._kernel, *around = target.load([instance, *adding_instances(problem, use, ordered)])
        self._shared_bytes = shared_bytes(instance)
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("upload"):
            self._around, to = adding_up(self, problem, use, rows, around)
            targets = target.xp.full(held.rows.shape, NO_ROW, np.int32)
            targets[real] = to
            arrays = held.relations, held.starts, held.indices, values, targets
            self._arrays = [self.upload(array) for array in arrays]
        self._grid = (len(held.relations), ceil_div(width, int(schedule["tile"])), 1)
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Clear what is added into or has no edges, compute, and finish the rows that several pieces share."""
        self._around.before(out)
        args = (*self._sizes, *self._arrays, *operands, out, self._around.sums)
        if self._grid[0]:
            self._kernel.launch(self._grid, args, self._shared_bytes, overlap=True)
        self._around.after(out)


def pieces_instance(problem: RelationalProblem, tile: int, ordered: int) -> Instance:
    """Give the kernel of a schedule, which may not exist."""
    depth = next(depth for depth in _DEPTHS if depth >= problem.width_in)
    arguments = {"T": C_TYPES[problem.dtype], "tile": tile, "depth": depth, "ordered": bool(ordered)}
    return RGMS_PIECES.instance(**arguments, threads=_THREADS)


def shared_bytes(instance: Instance) -> int:
    """Give the dynamic shared memory of a thread block."""
    tile, depth = int(instance.values["tile"]), int(instance.values["depth"])
    return 2 * (PIECES * (depth + 8) + depth * (tile + 8))


def may_take_pieces(problem: RelationalProblem) -> bool:
    """Tell whether `RGMS_PIECES` has a problem: 16 bits, widths in steps of 8, X no wider than its kernels."""
    aligned = problem.width_in % 8 == 0 and problem.width_out % 8 == 0
    return problem.dtype.narrow and aligned and problem.width_in <= _DEPTHS[-1]


RELATIONAL_PIECES = KernelFamily(
    mark="longest",
    axes=lambda problem, pinned: {
        "longest": (16, 8, 32),
        "tile": tiles_within(problem.width_out)[:-2:-1],
        "ordered": (False, True),
    },
    opened=lambda problem, target: OneFormat(
        ("longest",),
        lambda form: RelationalPieces.of(problem.matrix, PIECES, form["longest"], xp=target.xp),
        lambda held, form, schedule, _: RelationalPiecesPlan(problem, target, held, form, **schedule),
    ),
    kernel=lambda problem, config: pieces_instance(problem, **taken_apart(config, ("longest",))[1]),
)
"""For problems that `may_take_pieces`."""
