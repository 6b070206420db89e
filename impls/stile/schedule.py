"""How tiles are run: loads, threads of a group and work of a block, by J and dtype; what is tried, in what order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spmark.impls.core.problem import DType
from spmark.impls.kernels import tile_float
from spmark.impls.kernels.ell_buckets import LANES, NEVER
from spmark.impls.kernels.tile_tasks import ALONE

Schedule = dict[str, Any]
_WORK = (16, 64, 8, 128)
_LONG_ROWS = ((NEVER, 64), (32, NEVER), (32, 128), (NEVER, 32), (128, NEVER))
"""From what width a warp and a thread block share an ELL row, as they are tried."""
_LONG = 32


def ell_tiles(width: int, dtype: DType) -> list[Schedule]:
    """List the loads of ELL rows: the widest that divide J and half of them, over so many lanes, and two side by side.

    The first is what is taken where nothing is measured.
    """
    most = 16 // dtype.itemsize
    vectors = [v for v in (8, 4, 2, 1) if v <= most and width % v == 0][:2]
    found = [{"vector": v, "vectors": 1, "lanes": n} for v in vectors for n in LANES[::-1] if v * n <= width]
    found += [{**one, "vectors": 2} for one in found if one["vector"] == most and 2 * most * one["lanes"] <= width]
    return found or [{"vector": vectors[-1], "vectors": 1, "lanes": LANES[0]}]


def block_tiles(width: int, dtype: DType = DType.FLOAT16) -> list[Schedule]:
    """List those of `ell_tiles` that `spmark.impls.kernels.tile_spmm` has kernels for; J is a multiple of 8."""
    if dtype is DType.FLOAT32:
        loads = {"vector": tile_float.VECTOR, "vectors": tile_float.VECTORS}
        lanes = [n for n in LANES[::-1] if tile_float.VECTOR * n <= width] if width > 32 else []
        return [{**loads, "lanes": n} for n in lanes or LANES[:1]]
    if width <= 32:
        return [{"vector": v, "vectors": 1, "lanes": LANES[0]} for v in (4, 8)]
    found = [one for one in ell_tiles(width, DType.FLOAT16) if one["vector"] == 8]
    return found or [{"vector": 8, "vectors": 1, "lanes": LANES[0]}]


def middle(tile: Mapping[str, Any]) -> Schedule:
    """Give the schedule that a walk starts from, and that is taken where nothing is measured."""
    return {**tile, "work": 32, "spread": NEVER, "together": NEVER}


def walk(  # noqa: PLR0917
    tiles: list[Schedule],
    widest: int,
    blocks: bool,
    half: bool,
    time_us: Callable[[Schedule], float],
    hopeless: Callable[[float], bool],
) -> None:
    """Walk along the axes of a schedule of SpMM from the fastest so far: tiles, panels, work, who shares rows, order.

    Parameters
    ----------
    tiles : list
        Of `ell_tiles` or `block_tiles`.
    widest : int
        Widest ELL row; 0 where there is none.
    blocks : bool
        Whether there are block tiles.
    half : bool
        Whether they are of float16.
    time_us : callable
        Time of a schedule, infinite where it cannot be built; asked once for each.
    hopeless : callable
        Whether a time of the best tile is so long that walking on is of no use.
    """
    starts = [middle(tile) for tile in (tiles if widest else tiles[:1])]
    if blocks:
        starts = [{**start, "alone": alone} for start in starts for alone in ALONE]
    times = [(time_us(start), i) for i, start in enumerate(starts)]
    best_us, at = min(times)
    if hopeless(best_us):
        return
    best = starts[at]
    changes: list[Schedule] = []
    if blocks and half and not widest:
        changes.append({"shallow": True})
    if widest:
        changes += [{"work": work} for work in _WORK]
    if widest >= _LONG:
        changes += [{"spread": a, "together": b} for a, b in _LONG_ROWS if b == NEVER or b <= widest]
    if not blocks:
        changes.append({"by_row": True})
    for change in changes:
        best, best_us = _better(best, best_us, change, time_us)


def _better(
    best: Schedule, best_us: float, change: Schedule, time_us: Callable[[Schedule], float]
) -> tuple[Schedule, float]:
    changed = {**best, **change}
    found = time_us(changed)
    return (changed, found) if found < best_us else (best, best_us)


def run_schedules(width: int, dtype: DType) -> list[Schedule]:
    """List the schedules of SDDMM over non-zeros alone; the first is taken where nothing is measured."""
    most = 16 // dtype.itemsize
    vectors = [v for v in (8, 4, 2, 1) if v <= most and width % v == 0][:2]
    tiles = [(v, n) for v in vectors for n in LANES[::-1] if v * n <= width] or [(vectors[-1], LANES[0])]
    return [
        {"vector": vector, "lanes": lanes, "batch": batch, "searched": searched}
        for vector, lanes in tiles
        for batch in (4, 2)
        for searched in (False, True)
    ]


def tile_schedules(width: int) -> list[Schedule]:
    """List the schedules of SDDMM over block tiles and runs; the first is taken where nothing is measured."""
    lanes = [n for n in LANES[::-1] if 8 * n <= width] if width % 8 == 0 else []
    return [
        {"lanes": n, "batch": batch, "groups": groups}
        for n in (lanes or [LANES[0]])
        for batch in (4, 2)
        for groups in (8, 2)
    ]
