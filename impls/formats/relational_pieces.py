"""Pieces of a matrix of several relations: the edges of one relation that end in one row, in tiles of a relation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.spans import cut, lengths, numbered


@dataclass(frozen=True, eq=False)
class RelationalPieces:
    """Edges by tile and piece. Tiles with most edges come first; neighbours in a tile have about equally many."""

    relations: DeviceArray
    """(tiles,) int32, relation of each tile."""
    rows: DeviceArray
    """(tiles, pieces) int32, row of A of each piece, or -1 behind the last."""
    starts: DeviceArray
    """(tiles pieces + 1,) int32, first edge of each piece, and the number of edges."""
    indices: DeviceArray
    """(nnz,) int32, columns, the rows of X."""
    positions: DeviceArray
    """(nnz,) int64, position of each edge in the wide CSR of the matrix (`RelationalCsr.wide`)."""

    @classmethod
    def of(cls, matrix: RelationalCsr, pieces: int, longest: int, *, xp: Any = np) -> RelationalPieces:
        """Lay a matrix out. O(nnz log nnz + R) work.

        Parameters
        ----------
        matrix : RelationalCsr
        pieces : int
            Of a tile.
        longest : int
            Edges of a piece at most; a longer one is cut.
        xp : module
            NumPy or CuPy, whose arrays the result has: a GPU lays millions of edges out in milliseconds.
        """
        nnz, relations = matrix.nnz, matrix.relations
        indptr, indices = (xp.asarray(each) for each in (matrix.wide.indptr, matrix.wide.indices))
        relation, cols = xp.divmod(indices, np.int32(matrix.num_cols))
        row_of, _ = numbered(xp, indptr[1:] - indptr[:-1], nnz)
        first = xp.flatnonzero(openings(row_of) | openings(relation))
        begins, _ = cut(xp, first, nnz, longest)
        edges, of_piece = lengths(xp, begins, nnz), relation[begins]

        counts = xp.bincount(of_piece, minlength=relations)
        tiles_of = -(-counts // pieces)
        of_tile, _ = numbered(xp, tiles_of, tiles := int(tiles_of.sum()))
        order = xp.lexsort(xp.stack([-edges, of_piece]))
        before = (xp.cumsum(tiles_of) - tiles_of) * pieces - (xp.cumsum(counts) - counts)
        place = xp.empty(order.size, np.int64)
        place[order] = xp.arange(order.size) + before[of_piece[order]]
        # All thread blocks run at once but for the last ones, which should be short.
        by_work = xp.argsort(-xp.bincount(place // pieces, edges, tiles), kind="stable")
        turn = xp.empty(tiles, np.int64)
        turn[by_work] = xp.arange(tiles)
        place = turn[place // pieces] * pieces + place % pieces

        rows = xp.full(tiles * pieces, -1, np.int32)
        rows[place] = row_of[begins]
        mine, _ = numbered(xp, edges, nnz)
        positions = xp.argsort(place[mine], kind="stable")
        starts = xp.append(0, xp.cumsum(xp.bincount(place, edges, tiles * pieces)))
        return cls(
            of_tile[by_work].astype(np.int32),
            rows.reshape(-1, pieces),
            starts.astype(np.int32),
            cols[positions].astype(np.int32),
            positions,
        )
