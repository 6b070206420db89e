"""The output-stationary form of a graph of many relations: tiles of rows whose sets of relations are alike.

In a knowledge graph the type of a node decides which relations it has, so that few sets stand for most rows. Rows are
sorted by their set in the order of a Gray code, the rarest relations first, as `spmark.impls.formats.relational_rows`
does for maps; here relations may be any number, and a row may have any number of edges of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import numbered, offsets, openings
from spmark.impls.core.relational import RelationalCsr

WARPS = 4
"""Of a thread block, which owns a tile."""
GROUP = 16
"""Rows of a warp."""
CHUNK = 32
"""Edges that a warp takes at a time."""
_BITS = 48
"""Relations of a word of a set: sums of powers of two are exact in float64."""


@dataclass(frozen=True, eq=False)
class RelationalSets:
    """Pieces of rows in tiles, with the relations of each tile, and the edges of each warp in chunks of a relation."""

    name: ClassVar[str] = "relational_sets"

    places: NDArray[np.int32]
    """(tiles, WARPS GROUP) row of A of each piece, or -1; a row with many edges has several pieces."""
    starts: NDArray[np.int32]
    """(tiles + 1,) first step of each tile: a step is a relation that any of its pieces has."""
    steps: NDArray[np.int32]
    """Relation of each step, rising in a tile."""
    chunk_starts: NDArray[np.int32]
    """(tiles WARPS + 1,) first chunk of each warp."""
    chunk_steps: NDArray[np.int32]
    """(chunks,) step of each chunk, counted from the first of its tile."""
    indices: NDArray[np.int32]
    """(chunks, CHUNK) row of X of each edge, or -1 in padding."""
    rows: NDArray[np.int32]
    """(chunks, CHUNK) piece of each edge, counted in its warp."""
    positions: NDArray[np.int32]
    """(chunks, CHUNK) position of each edge in the wide CSR of the matrix, or -1."""

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.indices.size

    @classmethod
    def of(cls, matrix: RelationalCsr, piece: int) -> RelationalSets:
        """Lay a matrix out. O(nnz log nnz + I R / 48) time.

        Parameters
        ----------
        matrix : RelationalCsr
        piece : int
            Edges of a row that stand in one tile at most.
        """
        wide, (relation, _, cols) = matrix.wide, matrix.edges
        of_piece, fold = numbered(-(-matrix.row_lengths // piece))
        lengths = np.diff(wide.indptr[of_piece] + fold * piece, append=matrix.nnz)
        mine = np.repeat(np.arange(of_piece.size), lengths)

        opens = openings(mine) | openings(relation)
        rank = np.empty(matrix.relations, np.int64)
        frequent = np.argsort(-np.bincount(relation[opens], minlength=matrix.relations), kind="stable")
        rank[frequent] = np.arange(matrix.relations)
        word, bit = np.divmod(rank[relation[opens]], _BITS)
        codes = []
        for number in range(-(-matrix.relations // _BITS)):
            has = np.where(word == number, 2.0**bit, 0.0)
            code = np.bincount(mine[opens], has, of_piece.size).astype(np.int64)
            for shift in (1, 2, 4, 8, 16, 32):
                code ^= code >> shift
            codes.append(code)
        order = np.lexsort(codes)
        held = np.pad(order, (0, -order.size % (WARPS * GROUP)), constant_values=-1).reshape(-1, WARPS * GROUP)
        # Long work first, so that the last thread blocks are short.
        held = held[np.argsort(-np.append(lengths, 0)[held].sum(axis=1), kind="stable")]
        tiles, real = len(held), held.reshape(-1) >= 0
        place = np.empty(of_piece.size, np.int64)
        place[held.reshape(-1)[real]] = np.flatnonzero(real)
        places = np.append(of_piece, -1)[held]  # where a place is -1, the last element

        # Edges warp by warp, and relation by relation.
        warp = place[mine] // GROUP
        key = warp * matrix.relations + relation
        edges = np.argsort(key, kind="stable")
        group = np.flatnonzero(openings(key[edges]))
        of_warp, of_relation = np.divmod(key[edges[group]], matrix.relations)
        keys, step = np.unique(of_warp // WARPS * matrix.relations + of_relation, return_inverse=True)
        starts = offsets(np.bincount(keys // matrix.relations, minlength=tiles), np.int32)
        counts = np.diff(group, append=matrix.nnz)
        chunks = -(-counts // CHUNK)
        in_group, at = numbered(counts)
        slot = (offsets(chunks)[:-1] * CHUNK)[in_group] + at
        positions, indices, rows = np.full((3, int(chunks.sum()) * CHUNK), -1, np.int32)
        positions[slot], indices[slot], rows[slot] = edges, cols[edges], place[mine[edges]] % GROUP
        return cls(
            places.astype(np.int32),
            starts,
            (keys % matrix.relations).astype(np.int32),
            offsets(np.bincount(of_warp, chunks, tiles * WARPS).astype(np.int64), np.int32),
            np.repeat(step - starts[of_warp // WARPS], chunks).astype(np.int32),
            *(each.reshape(-1, CHUNK) for each in (indices, rows, positions)),
        )
