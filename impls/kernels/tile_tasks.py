"""Deal block tiles out to warps, and say where the sums of each tile go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import numbered
from spmark.impls.formats.row_use import RowUse, row_use
from spmark.impls.formats.tiles import Blocks
from spmark.impls.runtime.target import ceil_div

NO_ROW = -(2**31)
"""Target of a row that the kernel does not write, ``kNoRow`` of ``row_target.cuh``."""
WARPS = 4
"""Warps of a thread block."""
ALONE = (4, 8, 16, 32)
"""Most groups of a panel that one warp takes by itself; the warps of a thread block share a longer panel. Few are right
where there are few panels, many where there are enough panels to keep all warps busy."""
MOST = 64
"""Most groups of a warp: a longer panel is divided between thread blocks, each of which brings a piece of its rows."""
NO_PIECES = np.empty((0, 4), np.int32)
"""The pieces where sums are added up atomically."""


@dataclass(frozen=True, eq=False)
class Panels:
    """Panels of one height or two, dealt out."""

    rows: tuple[NDArray[np.int32], ...]
    """(p, R) for each height: rows of A, -1 where a panel has fewer."""
    tasks: tuple[NDArray[np.int32], ...]
    """The tasks of `panel_tasks` for each height."""
    counts: tuple[NDArray[np.int64], ...]
    """(p,) for each height: thread blocks that share a panel; each of them brings a piece of every row."""

    @classmethod
    def of(cls, blocks: Sequence[Blocks], alone: int) -> Panels:
        """Deal panels out; ``alone`` as of `panel_tasks`."""
        dealt = [panel_tasks(part.indptr, alone) for part in blocks]
        return cls(tuple(part.rows for part in blocks), *zip(*dealt, strict=True))

    def use(self, num_rows: int, others: NDArray[np.int32] | None = None) -> RowUse:
        """Find the rows that panels share with each other or with ``others``, the rows of other tiles (-1 for none)."""
        every = [np.repeat(rows, counts, axis=0) for rows, counts in zip(self.rows, self.counts, strict=True)]
        if others is not None:
            every.append(others)
        return row_use(num_rows, [rows[rows >= 0] for rows in every])

    def targets(self, use: RowUse, numbered: bool) -> list[NDArray[np.int32]]:
        """Give the targets of sums that are added up atomically: for each height (p, R), of `use` or `NO_ROW`."""
        return [np.where(rows >= 0, use.targets(np.maximum(rows, 0), numbered), NO_ROW) for rows in self.rows]

    def pieces(self, use: RowUse) -> tuple[list[NDArray[np.int32]], NDArray[np.int32]]:
        """Give numbers to the pieces of shared rows, so that the warp with a row's last piece finds all.

        O(rows log rows).

        Parameters
        ----------
        use : RowUse
            The answer of `use`, without others.

        Returns
        -------
        targets : list of (p, R) int32
            r where row r is written whole, -1 - n where the panel's first piece is piece n, `NO_ROW`.
        pieces : (n, 4) int32
            For each piece: row of C, first and end of the pieces of that row, number of the row among the shared ones.
        """
        every = np.concatenate([rows.reshape(-1) for rows in self.rows])
        times = np.concatenate([np.repeat(n, rows.shape[1]) for rows, n in zip(self.rows, self.counts, strict=True)])
        is_shared = np.zeros(use.num_rows + 1, np.bool_)  # the last one is that of -1
        is_shared[use.shared] = True
        entries = np.flatnonzero(is_shared[every])
        entries = entries[np.argsort(every[entries], kind="stable")]
        targets = np.where(every >= 0, every, NO_ROW).astype(np.int32)
        targets[entries] = times[entries] - np.cumsum(times[entries]) - 1
        sizes = np.bincount(every[entries], times[entries], minlength=use.num_rows)[use.shared].astype(np.int64)
        ends = np.cumsum(sizes)
        pieces = np.stack([use.shared, ends - sizes, ends, np.arange(use.shared.size)], axis=1).astype(np.int32)
        bounds = np.cumsum([rows.size for rows in self.rows])[:-1]
        by_height = [flat.reshape(rows.shape) for flat, rows in zip(np.split(targets, bounds), self.rows, strict=True)]
        return by_height, np.repeat(pieces, sizes, axis=0)


def panel_tasks(indptr: NDArray[np.int32], alone: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Deal panels out to warps: a short one to one warp, a long one to the warps of one thread block or of several.

    Parameters
    ----------
    indptr : (p + 1,) int32
        Groups of each panel.
    alone : int
        Most groups that one warp takes by itself.

    Returns
    -------
    tasks : (4 n, 4) int32
        For each warp of n thread blocks, longest work first: panel (-1: none), first group, end of the groups, share.
        The share is 0 where the warp has the panel by itself, and k + 1 where the warps of the block share the panel
        with k blocks before.
    pieces : (p,) int64
        Thread blocks that add into each panel's rows.
    """
    counts = np.diff(indptr).astype(np.int64)
    pieces = np.maximum(1, -(-counts // (WARPS * MOST)))
    order = np.argsort(-counts // pieces, kind="stable")
    long, short = order[counts[order] > alone], order[counts[order] <= alone]
    at, piece = numbered(pieces[long])
    panel = long[at]
    # The part of each warp: cut between 0 and 1 of the panel.
    part = piece[:, None] * WARPS + np.arange(WARPS + 1)
    bounds = indptr[panel, None] + part * counts[panel, None] // (WARPS * pieces[panel, None])
    tasks = np.zeros((panel.size + ceil_div(short.size, WARPS), WARPS, 4), np.int32)
    shared = np.broadcast_arrays(panel[:, None], bounds[:, :-1], bounds[:, 1:], piece[:, None] + 1)
    tasks[: panel.size] = np.stack(shared, axis=2)
    single = tasks[panel.size :].reshape(-1, 4)
    single[:, 0] = -1
    single[: short.size] = np.stack([short, indptr[short], indptr[short + 1], np.zeros_like(short)], axis=1)
    return tasks.reshape(-1, 4), pieces
