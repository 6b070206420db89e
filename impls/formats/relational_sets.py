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
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.spans import cut, lengths, numbered

GROUP = 16
"""Rows of a warp in a tile."""
CHUNK = 32
"""Edges that a warp takes at a time."""
_BITS = 48
"""Relations of a word of a set: sums of powers of two are exact in float64."""


@dataclass(frozen=True, eq=False)
class RelationalSets:
    """Pieces of rows in tiles, with the relations of each tile, and the edges of each warp in chunks of a relation."""

    places: DeviceArray
    """(parts, warps GROUP) int32, row of A of each piece, or -1; a row with many edges has several pieces."""
    bounds: DeviceArray
    """(blocks + 1, 2) int32, first step and first part of each thread block."""
    steps: DeviceArray
    """(steps,) int32, relation of each step; rising in a part."""
    ends: DeviceArray
    """(steps,) bool, whether a step is the last of its part."""
    chunk_starts: DeviceArray
    """(blocks warps + 1,) int32, first chunk of each warp."""
    chunk_steps: DeviceArray
    """(chunks,) int32, step of each chunk, counted from the first of its thread block."""
    indices: DeviceArray
    """(chunks, CHUNK) int32, row of X of each edge, or -1 in padding."""
    rows: DeviceArray
    """(chunks, CHUNK) int32, piece of each edge, counted in its warp and part."""
    positions: DeviceArray
    """(chunks, CHUNK) int32, position of each edge in the wide CSR of the matrix, or -1."""

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return int(self.indices.size)

    @property
    def warps(self) -> int:
        """Warps of a thread block."""
        return int(self.places.shape[1]) // GROUP

    @classmethod
    def of(
        cls, matrix: RelationalCsr, piece: int, warps: int, blocks: int, *, apart: bool = False, xp: Any = np
    ) -> RelationalSets:
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
        xp : module
            NumPy or CuPy, whose arrays the result has: a GPU lays millions of edges out in milliseconds.
        """
        nnz, relations = matrix.nnz, matrix.relations
        indptr, indices = (xp.asarray(each) for each in (matrix.wide.indptr, matrix.wide.indices))
        relation, cols = xp.divmod(indices, np.int32(matrix.num_cols))
        rows, _ = numbered(xp, indptr[1:] - indptr[:-1], nnz)
        begins = _pieces(xp, rows, relation, piece, apart)
        mine, _ = numbered(xp, lengths(xp, begins, nnz), nnz)
        place = _places(xp, begins, mine, relation, relations=relations, piece=piece)[mine]

        # Edges by tile, warp and relation.
        key = place // GROUP * relations + relation
        edges = xp.argsort(key, kind="stable")
        group = xp.flatnonzero(openings(key[edges]))
        of_warp, of_relation = xp.divmod(key[edges[group]], relations)
        steps, step = xp.unique(of_warp // warps * relations + of_relation, return_inverse=True)
        counts = lengths(xp, group, nnz)
        chunks = -(-counts // CHUNK)
        begins, opens = _runs(xp, steps // relations, step, chunks, blocks)
        block, part = xp.cumsum(begins) - 1, xp.cumsum(opens) - 1
        parts = int(opens.sum())
        bounds = xp.stack([xp.append(xp.flatnonzero(begins), steps.size), xp.append(part[begins], parts)], axis=1)

        # Of a thread block one warp after the other.
        owner = block[step] * warps + of_warp % warps
        turn = xp.argsort(owner, kind="stable")
        first = xp.empty(turn.size, np.int64)
        first[turn] = (xp.cumsum(chunks[turn]) - chunks[turn]) * CHUNK
        in_group, at = numbered(xp, counts, nnz)
        slot = first[in_group] + at
        positions, indices, numbers = (xp.full(int(chunks.sum()) * CHUNK, -1, np.int32) for _ in range(3))
        positions[slot], indices[slot], numbers[slot] = edges, cols[edges], place[edges] % GROUP
        places = xp.full((parts, warps * GROUP), -1, np.int32)
        places[part[step[in_group]], place[edges] % (warps * GROUP)] = rows[edges]
        of_chunk, _ = numbered(xp, chunks[turn], int(chunks.sum()))
        return cls(
            places,
            bounds.astype(np.int32),
            (steps % relations).astype(np.int32),
            xp.append(opens[1:], True)[: steps.size],
            xp.append(0, xp.cumsum(xp.bincount(owner, chunks, (len(bounds) - 1) * warps))).astype(np.int32),
            (step - bounds[block[step], 0])[turn][of_chunk].astype(np.int32),
            *(each.reshape(-1, CHUNK) for each in (indices, numbers, positions)),
        )


def _pieces(xp: Any, rows: Any, relation: Any, piece: int, apart: bool) -> Any:
    """Give the first edge of each piece."""
    opens = openings(rows)
    first = xp.flatnonzero(opens | openings(relation) if apart else opens)
    return cut(xp, first, rows.size, piece)[0]


def _places(xp: Any, begins: Any, mine: Any, relation: Any, *, relations: int, piece: int) -> Any:
    """Sort pieces by their sets of relations, then by their edges, and give each its place.

    Parameters
    ----------
    begins : (pieces,)
        First edge of each piece.
    mine, relation : (nnz,)
        Piece and relation of each edge.
    """
    opens = openings(mine) | openings(relation)
    mine, relation = mine[opens], relation[opens]
    rank = xp.empty(relations, np.int64)
    rank[xp.argsort(-xp.bincount(relation, minlength=relations), kind="stable")] = xp.arange(relations)
    word, bit = xp.divmod(rank[relation], _BITS)
    keys = [lengths(xp, begins, opens.size)]
    for number in range(-(-relations // _BITS)):
        has = xp.where(word == number, xp.left_shift(xp.ones_like(bit), bit), 0).astype(np.float64)
        code = xp.bincount(mine, has, begins.size).astype(np.int64)
        for shift in (1, 2, 4, 8, 16, 32):
            code ^= code >> shift
        keys.append(code)
    order = xp.lexsort(xp.stack(keys))
    # A warp has sixteen pieces, or fewer where they have many edges.
    share = xp.maximum(keys[0][order], piece // GROUP)
    warp = (xp.cumsum(share) - share) // piece
    place = xp.empty(begins.size, np.int64)
    place[order] = warp * GROUP + xp.arange(order.size) - xp.searchsorted(warp, warp)
    return place


def _runs(xp: Any, of_tile: Any, step: Any, chunks: Any, blocks: int) -> tuple[Any, Any]:
    """Mark the steps with which thread blocks begin, and those with which parts do.

    Parameters
    ----------
    of_tile : (steps,)
        Tile of each step.
    step, chunks : (n,)
        Step, and chunks, of a warp's edges of a relation.
    """
    # In each step all warps wait for the one with the most chunks. To multiply costs about as much as a chunk.
    order = xp.lexsort(xp.stack([chunks, step]))
    last = xp.append(xp.flatnonzero(openings(step[order]))[1:], order.size)[: of_tile.size] - 1
    cost = chunks[order[last]] + 1
    middle = xp.cumsum(cost) - cost / 2
    begins = openings((middle * (blocks / max(int(cost.sum()), 1))).astype(np.int64))
    return begins, begins | openings(of_tile)
