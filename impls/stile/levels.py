"""The light candidates of a level: the non-zeros left, regrouped into ELL tiles or one-dimensional tiles.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1: squeeze, split the rows, reorder them by their non-zeros,
divide them (ELL), or squeeze, flatten and divide (one-dimensional).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import grouped, numbered, offsets, openings
from spmark.impls.formats.threads import run_all
from spmark.impls.stile.loops import Level, price_tiles
from spmark.impls.stile.prices import ONE_DIMENSION
from spmark.impls.stile.space import Shapes
from spmark.impls.stile.windows import Tiled


def make_level(tiled: Tiled, shapes: Shapes, clock: int) -> Level:
    """Regroup the non-zeros without an owner.

    Parameters
    ----------
    tiled : Tiled
    shapes : Shapes
        Say whether there are ELL tiles (SpMM), or runs of 32 non-zeros in CSR order (SDDMM).
    clock : int
        Picks so far.

    Returns
    -------
    Level
        Made in O(nnz + I); all cores price its tiles. Rows that a tile has touched are kept apart from the others,
        since their sums must be added atomically.
    """
    items, first, stop, shape = _ell_tiles(tiled, shapes) if shapes.ell else _runs(tiled)
    count = first.size
    averages, seen = np.full(count, np.inf), np.zeros(count, np.int64)
    level = Level(items, first, stop, shape, np.zeros(count), np.zeros(count), averages, seen)
    tasks = tiled.tasks(items.size)
    bounds = [count * i // tasks for i in range(tasks + 1)]
    given = tiled.nonzeros, level, shapes.price, clock
    stamps = np.full((tasks, tiled.matrix.num_cols), -1, np.int32)
    run_all(price_tiles, [(*given, *share, stamp) for share, stamp in zip(pairwise(bounds), stamps, strict=True)])
    return level


def _ell_tiles(
    tiled: Tiled, shapes: Shapes
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Fold rows at the widest bucket, sort the pieces by length and cut them into tiles of every width.

    Tiles of a width hold the pieces that are longer than half of the width; the last of them is filled up with the
    pieces that follow, so that no slot stays empty.
    """
    widest, free = shapes.widest, np.flatnonzero(tiled.owner < 0).astype(np.int32)
    rows = tiled.row_of[free]
    first = np.flatnonzero(openings(rows))
    left = np.diff(first, append=free.size)
    row, number = numbered(-(-left // widest))
    begins, lengths = first[row] + number * widest, np.minimum(left[row] - number * widest, widest)
    # Pieces of untouched rows first, long ones before short ones; within a length in row order.
    touched = left < tiled.whole[rows[first]]
    order, first_piece = grouped((touched[row] * widest + widest - lengths).astype(np.int32), 2 * widest)
    piece, at = numbered(lengths[order])
    items, starts = free[begins[order][piece] + at], offsets(lengths[order])
    tiles = []
    for kind in range(2):
        end = int(first_piece[(kind + 1) * widest])
        for s, (width, height) in enumerate(zip(shapes.price.width, shapes.price.height, strict=True)):
            low, high = first_piece[kind * widest + widest - width], first_piece[kind * widest + widest - width // 2]
            top = np.arange(low, high, height, dtype=np.int64)
            tiles.append((starts[top], starts[np.minimum(top + height, end)], np.full(top.size, s, np.int32)))
    first, stop, shape = (np.concatenate(column) for column in zip(*tiles, strict=True))
    return items, first, stop, shape


def _runs(tiled: Tiled) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    items = np.flatnonzero(tiled.owner < 0).astype(np.int32)
    first = np.arange(0, items.size, ONE_DIMENSION, dtype=np.int64)
    stop = np.minimum(first + ONE_DIMENSION, items.size)
    return items, first, stop, np.zeros(first.size, np.int32)
