"""Tiles: a matrix as dense blocks of gathered columns, padded rows and runs of non-zeros, of many shapes at once.

The hybrid storage of Fang, Shen, Wang and Chen, "STile: Searching Hybrid Sparse Formats for Sparse Deep Learning
Operators Automatically", SIGMOD 2024, sections 2.2 and 3.1. A `Selection` gives the tile of each non-zero, which has
exactly one, so that the sum of the tiles is the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import grouped, offsets, openings
from spmark.impls.formats import limits
from spmark.impls.formats.hyb import THIRDS, HybFormat, HybLayout, unfilled
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
    places: NDArray[np.int64]
    """(n,) place of each of these non-zeros in ``values.reshape(-1)``."""


@dataclass(frozen=True, eq=False)
class Runs:
    """One-dimensional tiles."""

    indptr: NDArray[np.int32]
    """(t + 1,) elements of each tile."""
    rows: NDArray[np.int32]
    """(n,) row of each element."""
    indices: NDArray[np.int32]
    """(n,) column of each element."""
    values: NDArray[np.float32]
    """(n,) value of each element."""
    held: NDArray[np.int32]
    """(n,) non-zero of A that each element is, as its position in CSR order."""


@dataclass(frozen=True, eq=False)
class TileFormat:
    """A matrix in tiles.

    Rows of ELL tiles stand in buckets. Each width has two: one for rows that other tiles share, one for the rest. Which
    rows make a tile matters to the search, but not to the kernel.
    """

    name: ClassVar[str] = "tiles"

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
    def from_csr(cls, matrix: Csr, selection: Selection, *, thirds: bool = False) -> TileFormat:
        """Lay out tiles.

        Parameters
        ----------
        matrix : Csr
        selection : Selection
        thirds : bool
            Whether ELL rows that fill at most 3/4 of a tile of 32 and more stand in buckets of that width.

        Returns
        -------
        TileFormat
            O(nnz + c log c + stored) for c columns of panels; one pass over the non-zeros is serial, the rest runs on
            all cores.

        Raises
        ------
        BuildError
            A non-zero has no tile, a row is not in its block's window, an ELL tile has too many rows, or the tiles
            would hold more than `MAX_STORED` elements.
        """
        owner = selection.owner
        if owner.shape != (matrix.nnz,) or (owner.size and not 0 <= owner.min() <= owner.max() < selection.kind.size):
            raise BuildError(
                f"expected a tile out of {selection.kind.size} for each of {matrix.nnz:,} non-zeros, found "
                f"{owner.size:,} numbers from {owner.min(initial=0)} to {owner.max(initial=0)}"
            )
        # A bin for each panel, the highest first, then for each ELL tile, then for each run.
        kind, height, windows = selection.kind, selection.height.astype(np.int64), selection.window_rows.shape[0]
        number = np.where(kind == BLOCK, selection.window - height * (windows + 1), np.arange(kind.size))
        bins, bin_of = np.unique(number + kind.size * (kind == RUN), return_inverse=True)
        items, ptr = grouped(bin_of.astype(np.int32)[owner], bins.size)
        heights, window_of = -(bins // (windows + 1)), bins % (windows + 1)
        panels = int(np.searchsorted(bins, 0))
        blocks: dict[int, Blocks] = {}
        room = limits.MAX_STORED
        for high in dict.fromkeys(heights[:panels].tolist()):
            span = slice(*np.searchsorted(-heights[:panels], [-high, 1 - high]))
            rows = np.ascontiguousarray(selection.window_rows[window_of[span], :high])
            blocks[high] = _blocks(matrix, rows, _Part.of(items, ptr, span), room)
            room -= blocks[high].values.size
        ells = int(np.searchsorted(bins, kind.size))
        runs = _runs(matrix, _Part.of(items, ptr, slice(ells, bins.size)))
        pieces = [part.rows[part.rows >= 0] for part in blocks.values()]
        if runs:  # a piece is the part of a row in one run, and rows rise within a run
            begins = openings(runs.rows)
            begins[runs.indptr[:-1]] = True
            pieces.append(runs.rows[begins])
        tiles, part = bins[panels:ells], _Part.of(items, ptr, slice(panels, ells))
        ell = _ell(matrix, part, selection.width[tiles], selection.height[tiles], pieces, room=room, thirds=thirds)
        return cls(matrix.shape, matrix.nnz, blocks, ell, part.items, runs)

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        in_blocks = sum(part.values.size for part in self.blocks.values())
        return in_blocks + (self.ell.stored if self.ell else 0) + (self.runs.values.size if self.runs else 0)

    def to_csr(self) -> Csr:
        """Give the matrix back. O(stored)."""
        rows, indices = np.zeros(self.nnz, np.int32), np.zeros(self.nnz, np.int32)
        values = np.zeros(self.nnz, np.float32)
        for high, blocks in self.blocks.items():
            group, inside = np.divmod(blocks.places, high * GROUP)
            row, slot = np.divmod(inside, GROUP)
            panel = np.repeat(np.arange(blocks.rows.shape[0]), np.diff(blocks.indptr))
            rows[blocks.held] = blocks.rows[panel[group], row]
            indices[blocks.held] = blocks.indices[group, slot]
            values[blocks.held] = blocks.values.reshape(-1)[blocks.places]
        if self.ell:
            pieces, real = self.ell.to_csr(), np.flatnonzero(self.ell.rows >= 0)
            real = real[np.argsort(self.ell.starts[real], kind="stable")]
            rows[self.ell_held] = np.repeat(self.ell.rows[real], self.ell.lengths[real])
            indices[self.ell_held], values[self.ell_held] = pieces.indices, pieces.values
        if self.runs:
            rows[self.runs.held], indices[self.runs.held] = self.runs.rows, self.runs.indices
            values[self.runs.held] = self.runs.values
        indptr = offsets(np.bincount(rows, minlength=self.shape[0]), np.int32)
        return Csr(self.shape, indptr, indices, values)


class _Part(NamedTuple):
    """The non-zeros of some bins, bin by bin, in CSR order within a bin: bin b has ``items[ptr[b]:ptr[b + 1]]``."""

    items: NDArray[np.int32]
    ptr: NDArray[np.int64]

    @classmethod
    def of(cls, items: NDArray[np.int32], ptr: NDArray[np.int32], span: slice) -> _Part:
        """Take the bins of a span."""
        bounds = ptr[span.start : span.stop + 1].astype(np.int64)
        return cls(items[bounds[0] : bounds[-1]], bounds - bounds[0])

    def shares(self, scratch: int = 0) -> list[tuple[int, int]]:
        """Cut bins into ranges of about equal non-zeros, for tasks with so many bytes of scratch each."""
        tasks = with_scratch(min(cores(), self.items.size // SHARE), scratch)
        cuts = np.searchsorted(self.ptr, np.linspace(0, self.items.size, tasks + 1)[1:-1])
        return list(pairwise([0, *map(int, cuts), self.ptr.size - 1]))


def _blocks(matrix: Csr, rows: NDArray[np.int32], part: _Part, room: int) -> Blocks:
    """Lay out panels of ``rows`` (p, R), a bin each, which may hold ``room`` elements."""
    from spmark.impls.formats import loops

    num_rows, num_cols = matrix.shape
    (items, ptr), height, row_of = part, rows.shape[1], matrix.rows_of_entries()
    counts, places = np.zeros(rows.shape[0], np.int64), np.empty((2, items.size), np.int32)
    tasks = []
    for share in part.shares(4 * (2 * num_cols + num_rows)):
        columns, column_places, row_places = (np.full(size, -1, np.int32) for size in (num_cols, num_cols, num_rows))
        read = row_of, matrix.indices, items, ptr, rows
        tasks.append((*read, *share, columns, column_places, row_places, counts, places))
    run_all(loops.condense_panels, tasks)
    wrong = np.flatnonzero(places[0] < 0)
    if wrong.size:
        row = row_of[items[wrong[0]]]
        raise BuildError(f"expected every row of a block tile in its window, found row {row} of {num_rows} outside")
    group_ptr = offsets(-(-counts // GROUP))
    limits.check_stored(f"block tiles of {height} rows", matrix, int(group_ptr[-1]) * height * GROUP, room)
    panel, columns = np.repeat(np.arange(rows.shape[0]), np.diff(ptr)), matrix.indices[items]
    slots = group_ptr[panel] * GROUP + places[1]
    indices = np.repeat(np.maximum.reduceat(columns, ptr[:-1]), np.diff(group_ptr) * GROUP)
    indices[slots] = columns
    values = np.zeros((int(group_ptr[-1]), height, GROUP), np.float32)
    targets = (slots // GROUP * height + places[0]) * GROUP + slots % GROUP
    values.reshape(-1)[targets] = matrix.values[items]
    used = np.zeros(rows.shape, np.bool_)
    used[panel, places[0]] = True
    rows = np.where(used, rows, np.int32(-1))
    return Blocks(rows, group_ptr.astype(np.int32), indices.reshape(-1, GROUP), values, items, targets)


def _ell(
    matrix: Csr,
    part: _Part,
    widths: NDArray[np.int32],
    heights: NDArray[np.int32],
    others: list[NDArray[np.int32]],
    *,
    room: int,
    thirds: bool,
) -> HybFormat | None:
    """Cut ELL tiles, a bin each, into rows and sort these into buckets; ``others`` are rows of A of other pieces."""
    from spmark.impls.formats import loops

    if not part.items.size:
        return None
    given, shares = (matrix.rows_of_entries(), *part, widths), part.shares()
    counts, none = np.zeros(widths.size, np.int64), (np.empty(0, np.int32), np.empty(0, np.int64))
    run_all(loops.cut_tile_rows, [(*given, *share, counts, *none) for share in shares])
    high = np.flatnonzero(counts > heights)
    if high.size:
        tile = high[0]
        raise BuildError(
            f"expected at most {heights[tile]} rows of {widths[tile]} in an ELL tile, found {counts[tile]}"
        )
    bounds = offsets(counts)
    rows, starts = np.empty(int(bounds[-1]), np.int32), np.full(int(bounds[-1]) + 1, part.items.size)
    run_all(loops.cut_tile_rows, [(*given, *share, bounds, rows, starts) for share in shares])
    lengths, widths = np.diff(starts), np.repeat(widths, counts)
    narrower = widths // 4 * 3
    if thirds:
        widths = np.where((lengths <= narrower) & (THIRDS[0] <= narrower) & (narrower <= THIRDS[1]), narrower, widths)
    shared = np.zeros(matrix.num_rows, np.bool_)
    shared[row_use(matrix.num_rows, [*others, rows]).shared] = True
    keys = -2 * widths + ~shared[rows]
    kinds, sizes = np.unique(keys, return_counts=True)
    buckets, table = unfilled(
        matrix, [(0, -(key // 2), key % 2 == 0) for key in kinds.tolist()], sizes, "ELL tiles", room
    )
    order = np.argsort(keys, kind="stable")
    places = np.concatenate([bucket.first + np.arange(size) for bucket, size in zip(buckets, sizes, strict=True)])
    table[:, places] = rows[order], lengths[order], starts[order]
    pieces = Csr(
        (rows.size, matrix.num_cols), starts.astype(np.int32), matrix.indices[part.items], matrix.values[part.items]
    )
    return HybFormat.from_layout(
        pieces, HybLayout(matrix.shape, table[0], table[1], table[2], buckets, part.items.size)
    )


def _runs(matrix: Csr, part: _Part) -> Runs | None:
    """Lay out one-dimensional tiles, a bin each."""
    at = part.items
    if not at.size:
        return None
    return Runs(part.ptr.astype(np.int32), matrix.rows_of_entries()[at], matrix.indices[at], matrix.values[at], at)
