"""The output-stationary form of a graph of many relations: tiles of rows whose sets of relations are alike.

In a knowledge graph the type of a node decides which relations it has, so that few sets stand for most rows. Rows are
sorted by their set in the order of a Gray code, the rarest relations first, as `spmark.impls.formats.relational_rows`
does for maps; here relations may be any number, and a row may have any number of edges of each. Rows with the same set
are sorted by their number of edges.

A step is a relation of a tile. A thread block owns a run of steps, and each warp of it the edges of its rows in these
steps, in one sequence. Where a run ends within a tile, the tile has two parts, and a row a piece in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import numbered, offsets, openings
from spmark.impls.core.relational import RelationalCsr

GROUP = 16
"""Rows of a warp in a tile."""
CHUNK = 32
"""Edges that a warp takes at a time."""
_BITS = 48
"""Relations of a word of a set: sums of powers of two are exact in float64."""


@dataclass(frozen=True, eq=False)
class RelationalSets:
    """Pieces of rows in tiles, with the relations of each tile, and the edges of each warp in chunks of a relation."""

    name: ClassVar[str] = "relational_sets"

    places: NDArray[np.int32]
    """(parts, warps GROUP) row of A of each piece, or -1; a row with many edges has several pieces."""
    bounds: NDArray[np.int32]
    """(blocks + 1, 2) first step and first part of each thread block."""
    steps: NDArray[np.int32]
    """Relation of each step; rising in a part."""
    ends: NDArray[np.bool_]
    """Whether a step is the last of its part."""
    chunk_starts: NDArray[np.int32]
    """(blocks warps + 1,) first chunk of each warp."""
    chunk_steps: NDArray[np.int32]
    """(chunks,) step of each chunk, counted from the first of its thread block."""
    indices: NDArray[np.int32]
    """(chunks, CHUNK) row of X of each edge, or -1 in padding."""
    rows: NDArray[np.int32]
    """(chunks, CHUNK) piece of each edge, counted in its warp and part."""
    positions: NDArray[np.int32]
    """(chunks, CHUNK) position of each edge in the wide CSR of the matrix, or -1."""

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.indices.size

    @property
    def warps(self) -> int:
        """Warps of a thread block."""
        return int(self.places.shape[1]) // GROUP

    @classmethod
    def of(cls, matrix: RelationalCsr, piece: int, warps: int, blocks: int, apart: bool) -> RelationalSets:
        """Lay a matrix out. O(nnz log nnz + I R / 48) time.

        Parameters
        ----------
        matrix : RelationalCsr
        piece : int
            Edges of a row that are a piece at most, a multiple of GROUP; about so many edges a warp has of a tile.
        warps : int
            Of a thread block.
        blocks : int
            Thread blocks among which steps are divided; there are fewer where steps are few.
        apart : bool
            A piece has edges of one relation. Tiles then have a relation each, and all their rows have it: that pays
            where sets of relations are as many as rows.
        """
        relation, rows, cols = matrix.edges
        opens = openings(rows)
        first = np.flatnonzero(opens | openings(relation) if apart else opens)
        whole, fold = numbered(-(-np.diff(first, append=matrix.nnz) // piece))
        at = first[whole] + fold * piece
        lengths, of_piece = np.diff(at, append=matrix.nnz), rows[at]
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
        order = np.lexsort((lengths, *codes))
        # A warp has sixteen pieces, or fewer where they have many edges.
        share = np.maximum(lengths[order], piece // GROUP)
        of_share = (np.cumsum(share) - share) // piece
        turn = np.arange(order.size) - np.searchsorted(of_share, of_share)
        place = np.empty(of_piece.size, np.int64)
        place[order] = of_share * GROUP + turn

        # Edges by tile, warp and relation.
        warp = place[mine] // GROUP
        key = warp * matrix.relations + relation
        edges = np.argsort(key, kind="stable")
        group = np.flatnonzero(openings(key[edges]))
        of_warp, of_relation = np.divmod(key[edges[group]], matrix.relations)
        keys, step = np.unique(of_warp // warps * matrix.relations + of_relation, return_inverse=True)
        counts = np.diff(group, append=matrix.nnz)
        chunks = -(-counts // CHUNK)

        # In each step all warps wait for the one with the most chunks. To multiply costs about as much as a chunk.
        cost = np.ones(keys.size, np.int64)
        np.maximum.at(cost, step, chunks + 1)
        middle = np.cumsum(cost) - cost / 2
        begins = openings((middle * (blocks / max(cost.sum(), 1))).astype(np.int64))
        block, opens_part = np.cumsum(begins) - 1, openings(keys // matrix.relations) | begins
        part = np.cumsum(opens_part) - 1
        bounds = np.stack([np.flatnonzero(np.append(begins, True)), np.append(part[begins], opens_part.sum())], axis=1)

        # Of a thread block one warp after the other.
        owner = block[step] * warps + of_warp % warps
        turn = np.argsort(owner, kind="stable")
        first = np.empty(turn.size, np.int64)
        first[turn] = offsets(chunks[turn])[:-1] * CHUNK
        in_group, at = numbered(counts)
        slot = first[in_group] + at
        positions, indices, numbers = np.full((3, int(chunks.sum()) * CHUNK), -1, np.int32)
        positions[slot], indices[slot], numbers[slot] = edges, cols[edges], place[mine[edges]] % GROUP
        places = np.full((bounds[-1, 1], warps * GROUP), -1, np.int32)
        places[part[step[in_group]], place[mine[edges]] % (warps * GROUP)] = of_piece[mine[edges]]
        return cls(
            places,
            bounds.astype(np.int32),
            (keys % matrix.relations).astype(np.int32),
            np.append(opens_part[1:], True)[: keys.size],
            offsets(np.bincount(owner, chunks, len(bounds[1:]) * warps).astype(np.int64), np.int32),
            np.repeat((step - bounds[block[step], 0])[turn], chunks[turn]).astype(np.int32),
            *(each.reshape(-1, CHUNK) for each in (indices, numbers, positions)),
        )
