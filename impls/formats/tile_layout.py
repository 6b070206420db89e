"""How tiles are laid out: non-zeros sorted by tile, columns of panels condensed, ELL rows cut and put into buckets.

Imported by `spmark.impls.formats.tiles` on use, since its loops are compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats import loops
from spmark.impls.formats.hyb import THIRDS, UNIT, Bucket, HybFormat, HybLayout
from spmark.impls.formats.limits import check_stored
from spmark.impls.formats.row_use import row_use
from spmark.impls.formats.threads import SHARE, cores, run_all, with_scratch
from spmark.impls.formats.tiles import BLOCK, ELL, GROUP, RUN, Blocks, Runs, Selection


@dataclass(frozen=True, eq=False)
class Layout:
    """A matrix's non-zeros in bins: a bin for each panel of every height, then for each ELL tile, then for each run."""

    matrix: Csr
    selection: Selection
    row_of: NDArray[np.int32]
    """(nnz,) row of each non-zero."""
    items: NDArray[np.int32]
    """(nnz,) non-zeros, bin by bin, in CSR order within a bin."""
    ptr: NDArray[np.int64]
    """(bins + 1,); the non-zeros of bin b are ``items[ptr[b]:ptr[b + 1]]``."""
    windows: NDArray[np.int64]
    """(panels,) window of each panel."""
    heights: Mapping[int, slice]
    """Panels of each height, highest first."""
    ell_bins: slice
    """Bins that are ELL tiles."""
    ell_tiles: NDArray[np.int64]
    """(ELL tiles,) number of each ELL tile among all tiles."""

    @classmethod
    def of(cls, matrix: Csr, selection: Selection) -> Layout:
        """Sort the non-zeros into bins. O(nnz + tiles log tiles)."""
        kind, count = selection.kind, selection.window_rows.shape[0]
        is_block = kind == BLOCK
        keys = -selection.height[is_block].astype(np.int64) * (count + 1) + selection.window[is_block]
        panels, number = np.unique(keys, return_inverse=True)
        heights, windows = -(panels // (count + 1)), panels % (count + 1)
        counts = {int(h): int(np.count_nonzero(heights == h)) for h in dict.fromkeys(heights.tolist())}
        ends = np.cumsum([*counts.values()], dtype=np.int64).tolist()
        ell, run = np.flatnonzero(kind == ELL), np.flatnonzero(kind == RUN)
        bins = np.empty(kind.size, np.int32)
        bins[is_block], bins[ell] = number, panels.size + np.arange(ell.size)
        bins[run] = panels.size + ell.size + np.arange(run.size)
        sizes = np.bincount(selection.owner, minlength=kind.size)
        ptr = offsets(np.bincount(bins, sizes, panels.size + ell.size + run.size).astype(np.int64))
        items = np.empty(selection.owner.size, np.int32)
        loops.sort_items(selection.owner, bins, ptr[:-1].copy(), items)
        spans = {height: slice(end - n, end) for (height, n), end in zip(counts.items(), ends, strict=True)}
        ell_bins = slice(panels.size, panels.size + ell.size)
        return cls(matrix, selection, matrix.rows_of_entries(), items, ptr, windows, spans, ell_bins, ell)

    def blocks(self, height: int, room: int) -> Blocks:
        """Lay out the panels of one height, which may hold ``room`` elements."""
        matrix, row_of = self.matrix, self.row_of
        span = self.heights[height]
        ptr = self.ptr[span.start : span.stop + 1]
        items, ptr = self.items[ptr[0] : ptr[-1]], ptr - ptr[0]
        columns = np.zeros(ptr.size - 1, np.int64)
        num_rows, num_cols = matrix.shape
        shares = _shares(ptr, 4 * (2 * num_cols + num_rows))
        given = matrix.indices, items, ptr
        run_all(
            loops.count_panel_columns,
            [(*given, *share, np.full(num_cols, -1, np.int32), columns) for share in shares],
        )
        group_ptr = offsets(-(-columns // GROUP))
        check_stored(f"block tiles of {height} rows", matrix, int(group_ptr[-1]) * height * GROUP, room)
        rows = np.ascontiguousarray(self.selection.window_rows[self.windows[span], :height])
        indices = np.empty(int(group_ptr[-1]) * GROUP, np.int32)
        values = np.zeros((int(group_ptr[-1]), height, GROUP), np.float32)
        places, used = np.empty(items.size, np.int64), np.zeros(rows.shape, np.bool_)
        made = indices, values.reshape(-1), places, used
        tasks = []
        for share in shares:
            scratch = np.full(num_cols, -1, np.int32), np.empty(num_cols, np.int32), np.full(num_rows, -1, np.int32)
            read = row_of, matrix.indices, matrix.values, items, ptr, rows, group_ptr
            tasks.append((*read, GROUP, *share, *scratch, *made))
        wrong = max(run_all(loops.fill_panels, tasks), default=-1)
        if wrong >= 0:
            raise BuildError(
                f"expected every row of a block tile in its window, found row {row_of[wrong]} of {num_rows} outside"
            )
        rows = np.where(used, rows, np.int32(-1))
        return Blocks(rows, group_ptr.astype(np.int32), indices.reshape(-1, GROUP), values, items, places)

    def ell(
        self, others: list[NDArray[np.int32]], room: int, thirds: bool = False
    ) -> tuple[HybFormat | None, NDArray[np.int32]]:
        """Cut ELL tiles into rows and sort these into buckets.

        Parameters
        ----------
        others : list of (n,) int32
            Rows of A that other pieces hold.
        room : int
            Most elements that the buckets may hold.
        thirds : bool
            Whether ELL rows that fill at most 3/4 of a tile of 32 and more stand in buckets of that width.

        Returns
        -------
        buckets : HybFormat or None
        items : (n,) int32
            Non-zeros in the buckets, tile after tile.
        """
        matrix, row_of, selection = self.matrix, self.row_of, self.selection
        ptr = self.ptr[self.ell_bins.start : self.ell_bins.stop + 1]
        items, ptr = self.items[ptr[0] : ptr[-1]], ptr - ptr[0]
        if not items.size:
            return None, items
        widths, heights = selection.width[self.ell_tiles], selection.height[self.ell_tiles]
        counts, shares = np.zeros(widths.size, np.int64), _shares(ptr)
        run_all(loops.count_tile_rows, [(row_of, items, ptr, widths, *share, counts) for share in shares])
        high = np.flatnonzero(counts > heights)
        if high.size:
            tile = high[0]
            raise BuildError(
                f"expected at most {heights[tile]} rows of {widths[tile]} in an ELL tile, found {counts[tile]}"
            )
        row_ptr = offsets(counts)
        rows, starts = np.empty(int(row_ptr[-1]), np.int32), np.empty(int(row_ptr[-1]) + 1, np.int64)
        starts[-1] = items.size
        given = row_of, items, ptr, widths, row_ptr
        run_all(loops.cut_tile_rows, [(*given, *share, rows, starts) for share in shares])
        use = row_use(matrix.num_rows, [*others, rows])
        whole = np.ones(matrix.num_rows, np.bool_)
        whole[use.shared] = False
        widths = np.repeat(widths, counts)
        if thirds:
            narrower = widths // 4 * 3
            offered = (THIRDS[0] <= narrower) & (narrower <= THIRDS[1])
            widths = np.where((np.diff(starts) <= narrower) & offered, narrower, widths)
        layout = _buckets(matrix, rows, starts, widths, whole[rows])
        check_stored("ELL tiles", matrix, layout.stored, room)
        pieces = Csr((rows.size, matrix.num_cols), starts.astype(np.int32), matrix.indices[items], matrix.values[items])
        return HybFormat.from_layout(pieces, layout), items

    def runs(self) -> Runs | None:
        """Lay out one-dimensional tiles."""
        matrix, row_of = self.matrix, self.row_of
        ptr = self.ptr[self.ell_bins.stop :]
        at = self.items[ptr[0] :]
        if not at.size:
            return None
        return Runs((ptr - ptr[0]).astype(np.int32), row_of[at], matrix.indices[at], matrix.values[at], at)


def _shares(ptr: NDArray[np.int64], scratch: int = 0) -> list[tuple[int, int]]:
    """Cut bins into ranges of about equal non-zeros, for tasks with so many bytes of scratch each."""
    total = int(ptr[-1] - ptr[0])
    tasks = with_scratch(min(cores(), total // SHARE), scratch)
    cuts = np.searchsorted(ptr, ptr[0] + np.linspace(0, total, tasks + 1)[1:-1])
    return list(pairwise([0, *map(int, cuts), ptr.size - 1]))


def _buckets(
    matrix: Csr, rows: NDArray[np.int32], starts: NDArray[np.int64], widths: NDArray[np.int32], whole: NDArray[np.bool_]
) -> HybLayout:
    """Sort ELL rows into buckets, each filled up to whole units of the kernel."""
    keys = -2 * widths + whole
    order = np.argsort(keys, kind="stable")
    kinds, counts = np.unique(keys, return_counts=True)
    buckets: list[Bucket] = []
    place = np.empty(rows.size, np.int64)
    first = base = done = 0
    for key, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        width = -(key // 2)
        filled = -(-count * width // UNIT) * UNIT // width if width < UNIT else count
        buckets.append(Bucket(0, width, key % 2 == 0, first, filled, base))
        place[done : done + count] = first + np.arange(count)
        done, first, base = done + count, first + filled, base + filled * width
    row_of, lengths, begins = np.full(first, -1, np.int32), np.zeros(first, np.int32), np.zeros(first, np.int32)
    row_of[place], lengths[place], begins[place] = rows[order], np.diff(starts)[order], starts[:-1][order]
    return HybLayout(matrix.shape, row_of, lengths, begins, tuple(buckets), int(starts[-1]))
