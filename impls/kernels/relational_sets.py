"""The launcher of RGMS for graphs: thread blocks own rows of Y with like sets of relations, float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_sets import CHUNK, WARPS, RelationalSets
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.family import KernelFamily, OneFormat
from spmark.impls.kernels.ordered_rows import OrderedRows, ordered_instances
from spmark.impls.kernels.relational_hyb import tiles_within
from spmark.impls.kernels.tile_tasks import NO_ROW
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import Instance, KernelTemplate, widest_aligned

_THREADS = 32 * WARPS
RGMS_SETS = KernelTemplate(
    Path(__file__).parent / "relational_sets.cu",
    "rgms_sets",
    {"tile": (32, 64, 128), "depth": (32, 64, 128), "threads": (_THREADS,)},
    max_registers=255,
)


class RelationalSetsPlan(DevicePlan):
    """Y by `RGMS_SETS`; the pieces of a row with many edges are added up in order by a second launch.

    Parameters
    ----------
    problem : RelationalProblem
        That `spmark.impls.kernels.relational_hyb.may_merge`.
    target : Target
    held : RelationalSets
    config : mapping
        Facts for `DevicePlan.config`, to which ``tile`` is added.
    tile : int
        Columns of Y of a thread block (32, 64, 128).

    Raises
    ------
    BuildError
        There is no kernel for the tile.
    """

    def __init__(
        self, problem: RelationalProblem, target: Target, held: RelationalSets, config: Config, tile: int
    ) -> None:
        instance, width = sets_instance(problem, tile), problem.width_out
        alignment = widest_aligned(width, problem.dtype) * problem.dtype.itemsize
        super().__init__(problem, target, {**config, "tile": tile}, alignment=alignment)
        self.stored = held.stored
        with self.phase("compile"):
            self._kernel, *around = target.load([instance, *ordered_instances(width, problem.dtype)])
        depth = int(instance.values["depth"])
        self._shared_bytes = 4 * (depth * (tile + 8) + WARPS * CHUNK * (depth + 8))
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            real = held.places >= 0
            rows = held.places[real]
            use = row_use(problem.matrix.num_rows, [rows])
            tags = np.full(held.rows.shape, 0xFFFF0000, np.uint32)
            edges = held.positions >= 0
            values = problem.values[held.positions[edges]].view(np.uint16)
            tags[edges] = held.rows[edges].astype(np.uint32) << 16 | values
        with self.phase("upload"):
            self._around = OrderedRows(self, use, rows, width, around)
            targets = np.full(held.places.shape, NO_ROW, np.int32)
            targets[real] = self._around.targets
            arrays = held.starts, held.steps, held.chunk_starts, held.chunk_steps, held.indices, tags, targets
            self._arrays = [self.upload(array) for array in arrays]
        self._grid = (len(held.places), ceil_div(width, tile), 1)
        self._sizes = np.int32(problem.width_in), np.int32(width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Clear rows without edges, compute, and add up the pieces of rows that have several."""
        self._around.before(out)
        self._kernel.launch(
            self._grid, (*self._sizes, *self._arrays, *operands, out, self._around.sums), self._shared_bytes
        )
        self._around.after(out)


def sets_instance(problem: RelationalProblem, tile: int) -> Instance:
    """Give the kernel for a tile of columns of Y."""
    depth = next(depth for depth in map(int, RGMS_SETS.space["depth"]) if depth >= problem.width_in)
    return RGMS_SETS.instance(tile=tile, depth=depth, threads=_THREADS)


RELATIONAL_SETS = KernelFamily(
    mark="piece",
    axes=lambda problem, pinned: {"piece": (64, 16), "tile": tiles_within(problem.width_out)[:-3:-1]},
    opened=lambda problem, target: OneFormat(
        ("piece",),
        lambda form: RelationalSets.of(problem.matrix, form["piece"]),
        lambda held, form, schedule, _: RelationalSetsPlan(problem, target, held, form, **schedule),
    ),
    kernel=lambda problem, config: sets_instance(problem, config["tile"]),
)
"""For problems that `spmark.impls.kernels.relational_hyb.may_merge`."""
