"""The launcher of SpMM over tiles: block tiles on the matrix unit and ELL rows in one fused grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.tiles import GROUP, Blocks, TileFormat
from spmark.impls.kernels.block_spmm import mma_pieces, transposed_pieces
from spmark.impls.kernels.ell_buckets import LANES, NEVER, ell_work
from spmark.impls.kernels.shared_rows import SharedRows, shared_instances
from spmark.impls.kernels.tile_tasks import ALONE, NO_PIECES, WARPS, Panels
from spmark.impls.runtime.fusion import Share, fused
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, Instance, KernelTemplate

HEIGHT = 16
"""Rows of most block tiles."""
HEIGHTS = (HEIGHT, 8)
"""Rows of the block tiles that have kernels; in float32 only `HEIGHT`."""
AHEAD = {4: (4, 2), 8: (2, 1)}
"""Groups whose operands are on their way, by columns of a lane: as many as registers hold, and half as many."""
_THREADS = 128
VECTOR = 4
"""Elements of a load of ELL rows in float32; a thread has one."""
SPMM_TILES = KernelTemplate(
    Path(__file__).parent / "tile_spmm.cu",
    "spmm_tiles",
    {
        **{"T": ELEMENTS, "mixed": (False, True), "columns": (4, 8), "ahead": (1, 2, 4)},
        **{"vector": (4, 8), "vectors": (1, 2), "lanes": LANES, "threads": (_THREADS,)},
    },
)
"""In float32 each product is three of tf32 (see tile_rows.cuh)."""


def tile_spmm_instance(problem: Problem, schedule: Mapping[str, Any], mixed: bool) -> Instance:
    """Give the kernel of a schedule.

    Parameters
    ----------
    problem : Problem
    schedule : mapping
        Of `TileSpmmPlan`'s arguments.
    mixed : bool
        Whether there are ELL rows, or rows without elements, beside the block tiles.
    """
    columns = _columns(problem, schedule.get("columns", 8))
    tile = _loads(problem)
    if mixed:
        tile |= {name: schedule[name] for name in tile if name in schedule}
    tile |= {"columns": columns, "ahead": _ahead(problem, columns, schedule.get("shallow", False) and not mixed)}
    return SPMM_TILES.instance(T=C_TYPES[problem.dtype], mixed=mixed, **tile, threads=_THREADS)


def _loads(problem: Problem) -> dict[str, int]:
    return {"vector": 8 if problem.dtype.narrow else VECTOR, "vectors": 1, "lanes": LANES[0]}


def _columns(problem: Problem, columns: int) -> int:
    return 4 if problem.width <= 32 else columns


def _ahead(problem: Problem, columns: int, shallow: bool) -> int:
    return AHEAD[columns][shallow] if problem.dtype.narrow else 1


class TileSpmmPlan(DevicePlan):
    """C = A B over a `TileFormat`.

    Parameters
    ----------
    problem : Problem
        J a multiple of 8.
    target : Target
    tiled : TileFormat
        Block tiles of `HEIGHTS` rows (float32: `HEIGHT`), ELL rows, or both.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same format.
    **schedule : int
        - ``alone``: groups of a panel that one warp takes by itself;
        - ``columns``: columns of C that a lane sums of block tiles: 8 or 4. With 4, twice as many warps have half the
          work each, and ELL rows, where there are any, take one load of eight lanes. J up to 32 always has 4;
        - ``shallow``: keep the operands of half as many groups on their way as registers hold (`AHEAD`), so that more
          thread blocks fit. Types of 16 bits only. It has no effect where there are ELL rows or rows without elements,
          whose body takes the registers;
        - of the ELL rows, as of `spmark.impls.kernels.ell_buckets.EllBucketsPlan`, all but ``threads``; in float32
          loads of four elements, one beside the other.

    Raises
    ------
    BuildError
        There are tiles of another height or runs, or J or the loads have no kernel.
    """

    def __init__(
        self, problem: Problem, target: Target, tiled: TileFormat, config: Config, arrays: Arrays = (), **schedule: int
    ) -> None:
        narrow = problem.dtype.narrow
        heights = HEIGHTS if narrow else HEIGHTS[:1]
        if problem.width % 8 or tiled.runs or set(tiled.blocks) - {*heights}:
            raise BuildError(
                f"expected J a multiple of 8, block tiles of {heights} rows and ELL tiles for {problem.dtype}, found "
                f"{problem.width}, blocks of {[*tiled.blocks]} rows{' and runs' * bool(tiled.runs)}"
            )
        rest = {"spread": NEVER, "together": NEVER, "alone": ALONE[0], "columns": 8}
        whole = {**_loads(problem), **rest, **schedule}
        shallow = bool(whole.pop("shallow", False))
        columns = whole["columns"] = _columns(problem, whole["columns"])
        super().__init__(problem, target, {**config, **whole}, alignment=16)
        self.stored = tiled.stored
        with self.phase("convert"):
            blocks = [tiled.blocks.get(height) or _no_blocks(height) for height in HEIGHTS]
            panels = Panels.of(blocks, whole["alone"])
            use = panels.use(tiled.shape[0], tiled.ell.rows if tiled.ell else None)
            ranges, rows = ell_work(tiled.ell, use, problem.dtype, whole)
            mixed = ranges.shape[0] > 0
            self.config["ahead"] = _ahead(problem, columns, shallow and not mixed)
            arrives = narrow and not mixed
            targets, row_pieces = panels.pieces(use) if arrives else (panels.targets(use, narrow), NO_PIECES)
            lists = () if arrays else [*_elements(tiled, blocks, problem.dtype)]
        held = self.share(arrays, lists)
        filled = [values for values in held[1::2] if values.size]
        if len(filled) == 1:
            self.values, self.values_in_order = filled[0], False
        across = ceil_div(problem.width, 8 * columns)
        with self.phase("upload"):
            shares = [
                Share(tasks.shape[0] // WARPS, across, (self.upload(tasks), *held[2 * i : 2 * i + 2], self.upload(to)))
                for i, (tasks, to) in enumerate(zip(panels.tasks, targets, strict=True))
            ]
            ell_across = ceil_div(problem.width, whole["vector"] * whole["vectors"] * whole["lanes"])
            shares.append(Share(ranges.shape[0], ell_across, (*map(self.upload, (ranges, rows)), *held[-2:])))
            self._grid, self._args = fused(*shares)
        # The grid itself clears rows without elements, and adds up rows that arrive in pieces.
        around = replace(use, shared=use.shared[: 0 if arrives else None], empty=use.empty[:0])
        self.deterministic = around.shared.size == 0
        instance = tile_spmm_instance(problem, {**whole, "shallow": shallow}, mixed)
        beside = shared_instances(not self.deterministic, problem.width, problem.dtype, 8 if narrow else VECTOR)
        self._kernel, *kernels = self.load([instance, *beside])
        with self.phase("upload"):
            self._shared = SharedRows(self, around, problem.width, problem.dtype, kernels)
            sums, counted = self._shared.sums, 1
            if row_pieces.size:
                sums = self.workspace((row_pieces.shape[0], problem.width), np.float32)
                counted = use.shared.size * across
            self._last = sums, self.upload(row_pieces.reshape(-1)), self.counters(counted)
        self._width = np.int32(problem.width)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Compute in one grid; before it clear rows that are added up atomically, and after it round these rows."""
        self._shared.before(out)
        args = (self._width, *self._args, operands[0], out, *self._last)
        self._kernel.launch(self._grid, args, overlap=self._shared.clears)
        self._shared.after(out)


def _no_blocks(height: int) -> Blocks:
    rows, indices, held, places = (np.empty(shape, np.int32) for shape in ((0, height), (0, GROUP), 0, 0))
    values = np.empty((0, height, GROUP), np.float32)
    return Blocks(rows, np.zeros(1, np.int32), indices, values, held, places.astype(np.int64))


def _elements(tiles: TileFormat, blocks: list[Blocks], dtype: DType) -> Iterator[NDArray[np.generic]]:
    """Give columns and values of blocks, in the order of the unit's registers, and of ELL rows."""
    for part, of_narrow in zip(blocks, (mma_pieces, transposed_pieces), strict=True):
        ordered = of_narrow if dtype.narrow else split_pieces  # in float32 there are no low blocks
        yield from (part.indices.reshape(-1), ordered(dtype.stored(part.values)).reshape(-1))
    yield tiles.ell.indices if tiles.ell else np.empty(0, np.int32)
    yield dtype.stored(tiles.ell.values if tiles.ell else np.empty(0, np.float32))


def split_pieces(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Order groups as lanes hold them for two ``mma_m16n8k8``.

    Parameters
    ----------
    values : (g, 16, 16) float32

    Returns
    -------
    (g, 2, 32, 4) float32
        For each half of a group's columns the four elements of each lane: two columns of the lane's row, then the same
        of the row eight below. Column 8 h + 2 t + k is the (t + 4 k)-th of the unit's eight, as the rows of B in the
        kernel.
    """
    # Row = 8 side + r, column = 8 h + 2 t + k; lane = 4 r + t, its registers are (side, k).
    parts = values.reshape(-1, 2, 8, 2, 4, 2).transpose(0, 3, 2, 4, 1, 5)
    return np.ascontiguousarray(parts, np.float32).reshape(-1, 2, 32, 4)
