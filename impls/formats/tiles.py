"""Tiles: a matrix as dense blocks of gathered columns, padded rows and runs of non-zeros, of many shapes at once.

The hybrid storage of Fang, Shen, Wang and Chen, "STile: Searching Hybrid Sparse Formats for Sparse Deep Learning
Operators Automatically", SIGMOD 2024, sections 2.2 and 3.1. A `Selection` gives the tile of each non-zero, which has
exactly one, so that the sum of the tiles is the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, grouped, numbered, offsets, openings
from spmark.impls.formats import limits
from spmark.impls.formats.bsr import DenseBlocks
from spmark.impls.formats.hyb import HybFormat, HybLayout, unfilled
from spmark.impls.formats.row_use import row_use
from spmark.impls.formats.threads import SHARE, cores, run_all, with_scratch

BLOCK, ELL, RUN = 0, 1, 2
"""Kinds of tiles: rows of a window by gathered columns, zeros kept; padded rows; runs of non-zeros without padding."""
GROUP = 16
"""Columns of a group, by which block tiles grow."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The tile of each non-zero, and the shape of each tile."""

    owner: NDArray[np.int32]
    """(nnz,) tile of each non-zero, in CSR order."""
    kind: NDArray[np.int8]
    """(T,) `BLOCK`, `ELL` or `RUN`; every tile has at least one non-zero."""
    height: NDArray[np.int32]
    """(T,) most rows."""
    width: NDArray[np.int32]
    """(T,) most non-zeros of a row of an ELL tile, a power of two; for blocks and runs the width that the search
    priced."""
    window: NDArray[np.int32]
    """(T,) window of a block, -1 for other tiles; blocks of one window and height are summed together."""
    window_rows: NDArray[np.int32]
    """(W, tallest) rows of each window, -1 where it has fewer."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Panels of block tiles of one height; a panel sums all tiles of its window."""

    rows: NDArray[np.int32]
    """(p, R) rows of A, -1 where the window has fewer rows or the panel has no non-zero of the row."""
    indptr: NDArray[np.int32]
    """(p + 1,) groups of each panel."""
    indices: NDArray[np.int32]
    """(g, 16) columns, rising through a panel; its last column fills up its last group."""
    values: NDArray[np.float32]
    """(g, R, 16) row-major."""
    held: NDArray[np.int32]
    """(n,) non-zeros of A that are stored: panel by panel, each in CSR order."""
    places: NDArray[np.signedinteger[Any]]
    """(n,) place of each of these non-zeros in ``values.reshape(-1)``."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of non-zeros, each in CSR order: one-dimensional tiles as they are stored, others before their layout."""

    indptr: NDArray[np.int32]
    """(t + 1,) elements of each run."""
    rows: NDArray[np.int32]
    """(n,) row of each element."""
    indices: NDArray[np.int32]
    """(n,) column of each element."""
    values: NDArray[np.float32]
    """(n,) value of each element."""
    held: NDArray[np.int32]
    """(n,) non-zero of A that each element is, as its position in CSR order."""

    def part(self, first: int, stop: int) -> Runs:
        """Take some of the runs."""
        bounds = self.indptr[first : stop + 1]
        span = slice(bounds[0], bounds[-1])
        return Runs(bounds - bounds[0], self.rows[span], self.indices[span], self.values[span], self.held[span])

    def openings(self) -> NDArray[np.bool_]:
        """Mark where a row begins in a run, (n,)."""
        marks = openings(self.rows)
        marks[self.indptr[:-1]] = True
        return marks


@dataclass(frozen=True, eq=False)
class TileFormat:
    """A matrix in tiles.

    Rows of ELL tiles stand in buckets. Each width has two: one for rows that other tiles share, one for the rest. Which
    rows make a tile matters to the search, but not to the kernel.
    """

    shape: tuple[int, int]
    """(I, K)."""
    nnz: int
    blocks: Mapping[int, Blocks]
    """By height."""
    ell: HybFormat | None
    """Buckets of ELL rows, wide before narrow, shared before whole, tile after tile; ``starts`` are places in
    `ell_held`."""
    ell_held: NDArray[np.int32]
    """(n,) non-zeros of A in ELL rows, tile after tile, each in CSR order."""
    runs: Runs | None

    @classmethod
    def from_csr(cls, matrix: Csr, selection: Selection) -> TileFormat:
        """Lay out tiles.

        Parameters
        ----------
        matrix : Csr
        selection : Selection

        Returns
        -------
        TileFormat
            O(nnz + c log c + stored) for c columns of panels. The non-zeros are sorted by tile on one core; columns of
            panels and elements of ELL rows are found on all.

        Raises
        ------
        BuildError
            The tiles would hold more than `MAX_STORED` elements.
        """
        # A bin for each panel, the highest first, then for each ELL tile, then for each run.
        kind, height, windows = selection.kind, selection.height.astype(np.int64), selection.window_rows.shape[0]
        number = np.where(kind == BLOCK, selection.window - height * (windows + 1), np.arange(kind.size))
        bins, bin_of = np.unique(number + kind.size * (kind == RUN), return_inverse=True)
        items, ptr = grouped(bin_of.astype(np.int32).take(selection.owner), bins.size)
        row_of, columns, values = matrix.rows_of_entries(), matrix.indices, matrix.values
        every = Runs(ptr, row_of.take(items), columns.take(items), values.take(items), items)
        heights, window_of = -(bins // (windows + 1)), bins % (windows + 1)
        panels, ells = np.searchsorted(bins, (0, kind.size)).tolist()
        blocks: dict[int, Blocks] = {}
        room = limits.MAX_STORED
        for high in dict.fromkeys(heights[:panels].tolist()):
            first, stop = np.searchsorted(-heights[:panels], (-high, 1 - high)).tolist()
            rows = np.ascontiguousarray(selection.window_rows[window_of[first:stop], :high])
            blocks[high] = _blocks(matrix, every.part(first, stop), rows, room)
            room -= blocks[high].values.size
        part, runs = every.part(panels, ells), every.part(ells, bins.size)
        pieces = [one.rows[one.rows >= 0] for one in blocks.values()] + [runs.rows[runs.openings()]]
        ell = _ell(matrix, part, selection.width[bins[panels:ells]], pieces, room) if part.held.size else None
        return cls(matrix.shape, matrix.nnz, blocks, ell, part.held, runs if runs.held.size else None)

    @classmethod
    def of_blocks(cls, form: DenseBlocks) -> TileFormat:
        """View SR-BCRS in groups of 16 as block tiles. O(I); values are not copied."""
        height, panels = form.block_shape[0], form.indptr.size - 1
        rows = np.arange(panels * height, dtype=np.int32).reshape(-1, height)
        rows[rows >= form.shape[0]] = -1
        held = np.arange(form.nnz, dtype=np.int32)
        blocks = Blocks(rows, form.indptr, form.indices, form.blocks, held, form.positions)
        return cls(form.shape, form.nnz, {height: blocks}, None, held[:0], None)

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        in_blocks = sum(part.values.size for part in self.blocks.values())
        return in_blocks + (self.ell.stored if self.ell else 0) + (self.runs.values.size if self.runs else 0)


def _blocks(matrix: Csr, part: Runs, rows: NDArray[np.int32], room: int) -> Blocks:
    """Lay out panels of ``rows`` (p, R), a run each, which may hold ``room`` elements."""
    from spmark.impls.formats import loops

    ptr, columns, items = part.indptr, part.indices, part.held
    height = rows.shape[1]
    tasks = with_scratch(min(cores(), items.size // SHARE), 4 * (2 * matrix.num_cols + matrix.num_rows))
    cuts = np.searchsorted(ptr, np.linspace(0, items.size, tasks + 1)[1:-1]).tolist()
    counts, places = np.zeros(rows.shape[0], np.int32), np.empty((2, items.size), np.int32)
    used = np.zeros(rows.shape, np.bool_)
    calls = []
    for first, stop in pairwise((0, *cuts, rows.shape[0])):
        of, given = slice(first, stop), (part.rows, columns, ptr[first : stop + 1])
        calls.append((*given, rows[of], *matrix.shape, counts[of], places, used[of]))
    run_all(loops.condense_panels, calls)
    group_ptr = offsets(-(-counts // GROUP))
    stored = int(group_ptr[-1]) * height * GROUP
    limits.check_stored(f"block tiles of {height} rows", matrix.shape, matrix.nnz, stored, room)
    starts, panel = group_ptr.astype(np.int32), np.repeat(np.arange(rows.shape[0], dtype=np.int32), np.diff(ptr))
    slots = starts[panel] * np.int32(GROUP) + places[1]
    indices = np.repeat(np.maximum.reduceat(columns, ptr[:-1]), np.diff(starts) * GROUP)
    indices[slots] = columns
    values = np.zeros((int(starts[-1]), height, GROUP), np.float32)
    targets = (slots // np.int32(GROUP) * np.int32(height) + places[0]) * np.int32(GROUP) + slots % np.int32(GROUP)
    values.reshape(-1)[targets] = part.values
    rows = np.where(used, rows, np.int32(-1))
    return Blocks(rows, starts, indices.reshape(-1, GROUP), values, items, targets.astype(np.int64))


def _ell(matrix: Csr, part: Runs, widths: NDArray[np.int32], others: list[NDArray[np.int32]], room: int) -> HybFormat:
    """Cut ELL tiles, a run each, into rows and sort these into buckets.

    Parameters
    ----------
    widths : (tiles,) int32
        Most non-zeros of a row of each tile.
    others : list of (n,) int32
        Rows of A of other pieces.
    """
    first = np.flatnonzero(part.openings())  # of each row in a tile, which is cut where the width is full
    tile = np.searchsorted(part.indptr, first, side="right") - 1
    row, number = numbered(-(-np.diff(first, append=part.held.size) // widths[tile]))
    tile, starts = tile[row], np.append(first[row] + number * widths[tile[row]], part.held.size).astype(np.int32)
    rows, lengths, widths = part.rows[starts[:-1]], np.diff(starts), widths[tile]
    whole = np.ones(matrix.num_rows, np.bool_)
    whole[row_use(matrix.num_rows, [*others, rows]).shared] = False
    keys, kind_of = np.unique(-2 * widths + whole[rows], return_inverse=True)
    order, bounds = grouped(kind_of.astype(np.int32), keys.size)
    kinds, sizes = [(0, -(key // 2), key % 2 == 0) for key in keys.tolist()], np.diff(bounds)
    buckets, table = unfilled(matrix, kinds, sizes, "ELL tiles", room)
    places = np.concatenate([bucket.first + np.arange(size) for bucket, size in zip(buckets, sizes, strict=True)])
    table[:, places] = rows[order], lengths[order], starts[:-1][order]
    pieces = Csr((rows.size, matrix.num_cols), starts, part.indices, part.values)
    layout = HybLayout(matrix.shape, table[0], table[1], table[2], buckets, part.held.size)
    return HybFormat.from_layout(pieces, layout)
