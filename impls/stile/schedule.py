"""Schedules of tiles by J and dtype: loads, threads of a group and work of a block, in the order of trying."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels import ell_buckets
from spmark.impls.kernels.ell_buckets import LANES, LONG_ROWS, NEVER, WORK
from spmark.impls.kernels.sddmm import csr_tiles
from spmark.impls.kernels.tile_spmm import VECTOR
from spmark.impls.kernels.tile_tasks import ALONE
from spmark.impls.tuning.space import Axis

_LONG = 32
_LARGE_BLOCK = 256
"""Threads of a larger block, which shares rows of B in its caches; for two of the widest loads of ELL rows a thread."""


def ell_tiles(width: int, dtype: DType) -> list[Config]:
    """List the loads of ELL rows, the most lanes first; the first is taken where nothing is measured."""
    tiles = ell_buckets.ell_tiles(width, dtype)
    return sorted(tiles, key=lambda tile: (tile["vectors"], -tile["vector"], -tile["lanes"]))


def large_blocks(tiles: list[Config], dtype: DType) -> list[Config]:
    """List those of `ell_tiles` that have a kernel with larger thread blocks, each with this block size."""
    most = 16 // dtype.itemsize
    return [{**tile, "threads": _LARGE_BLOCK} for tile in tiles if (tile["vector"], tile["vectors"]) == (most, 2)]


def block_tiles(width: int, dtype: DType = DType.FLOAT16) -> list[Config]:
    """List those of `ell_tiles` that `spmark.impls.kernels.tile_spmm` has kernels for; J is a multiple of 8."""
    if not dtype.narrow:
        lanes = [n for n in LANES[::-1] if VECTOR * n <= width] if width > 32 else []
        return [{"vector": VECTOR, "vectors": 1, "lanes": n} for n in lanes or LANES[:1]]
    if width <= 32:
        return [{"vector": v, "vectors": 1, "lanes": LANES[0]} for v in (4, 8)]
    widest = [one for one in ell_tiles(width, DType.FLOAT16) if one["vector"] == 8]
    return widest or [{"vector": 8, "vectors": 1, "lanes": LANES[0]}]


def middle(tile: Mapping[str, Any]) -> Config:
    """Give a schedule of SpMM from the middle of its axes."""
    return {**tile, "work": WORK[0], "spread": NEVER, "together": NEVER}


def axes_of(problem: Problem, widest: int, blocks: bool) -> tuple[Axis, ...]:
    """List the axes of a schedule of SpMM, the one that decides most first: sharing of rows and panels, tile, work.

    Parameters
    ----------
    problem : Problem
    widest : int
        Widest ELL row; 0 where there are no ELL rows.
    blocks : bool
        Whether there are block tiles.

    Returns
    -------
    tuple of Axis
        The first values are those of `first_schedule`.
    """
    width, dtype = problem.width, problem.dtype
    tiles = block_tiles(width, dtype) if blocks else ell_tiles(width, dtype)
    long_rows = [one for one in LONG_ROWS if one[1] == NEVER or one[1] <= widest] if widest >= _LONG else []
    sharing = Axis("sharing", tuple({"spread": a, "together": b} for a, b in long_rows or LONG_ROWS[:1]))
    if not blocks:
        # Rows in A's order pay only with much work for a block, so that both make up one axis.
        order = tuple({"work": work, "by_row": by_row} for by_row, work in product((False, True), WORK))
        every = tuple({"threads": 128, **tile} for tile in (*tiles, *large_blocks(tiles, dtype)))
        return sharing, Axis("tile", every), Axis("order", order)
    if widest:
        return sharing, Axis.of("alone", ALONE), Axis("tile", tuple(tiles)), Axis.of("work", WORK)
    panels = Axis.of("alone", ALONE)
    if dtype.narrow:
        most = (8, 4) if tiles[0]["vector"] * LANES[0] > 32 else (4,)  # a narrow J has 4 always
        shapes = product(ALONE, most, (False, True))
        panels = Axis("panel", tuple({"alone": a, "columns": c, "shallow": shallow} for a, c, shallow in shapes))
    return sharing, panels, Axis("tile", tuple(tiles[:1])), Axis.of("work", WORK[:1])


def run_schedules(width: int, dtype: DType) -> list[Config]:
    """List the schedules of SDDMM over non-zeros alone; the first is taken where nothing is measured."""
    tiles = sorted(csr_tiles(width, dtype), key=lambda tile: (-tile["vector"], -tile["lanes"]))
    return [{**tile, "batch": batch} for tile in tiles for batch in (4, 2)]


def tile_schedules(width: int) -> list[Config]:
    """List the schedules of SDDMM over block tiles and runs; the first is taken where nothing is measured."""
    lanes = [n for n in LANES[::-1] if 8 * n <= width] if width % 8 == 0 else []
    schedules = product(lanes or LANES[:1], (4, 2), (8, 2))
    return [{"lanes": n, "batch": batch, "groups": groups} for n, batch, groups in schedules]


def sddmm_schedules(problem: Problem, blocks: bool) -> list[Config]:
    """List the schedules of SDDMM, with or without block tiles; the first is taken where nothing is measured."""
    return tile_schedules(problem.width) if blocks else run_schedules(problem.width, problem.dtype)


def first_schedule(problem: Problem, blocks: bool) -> Config:
    """Give the schedule that is taken where nothing is measured."""
    if problem.op is Op.SDDMM:
        return sddmm_schedules(problem, blocks)[0]
    tiles = block_tiles if blocks else ell_tiles
    return middle(tiles(problem.width, problem.dtype)[0])
