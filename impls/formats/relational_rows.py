"""The output-stationary form of a matrix with few relations: tiles of rows, and their neighbour in each relation.

For maps of sparse convolutions, in which a relation reaches a row once. Rows of one tile should have the same
relations: rows are sorted by their set of relations in the order of a Gray code, in which neighbouring sets differ
little (Tang, Yang, Liu, Hong, Yu, Li, Dai, Wang and Han, "TorchSparse++", MICRO 2023, sorts by the plain number).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import offsets, openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.spans import numbered

MAX_RELATIONS = 32
"""Bits of the Gray code."""
GROUP = 16
"""Rows of a tile that are multiplied at once."""


def why_not_rows(matrix: RelationalCsr) -> str | None:
    """Say why a matrix does not have this form: too many relations, or a row that a relation reaches twice."""
    if matrix.relations > MAX_RELATIONS:
        return f"expected at most {MAX_RELATIONS} relations, found {matrix.relations:,}"
    relation, rows, _ = matrix.edges
    twice = np.flatnonzero(~(openings(relation) | openings(rows)))  # edges are sorted by row, then relation
    if twice.size:
        at = int(twice[0])
        return f"expected an edge of each relation and row, found several of relation {relation[at]} and row {rows[at]}"
    return None


@dataclass(frozen=True, eq=False)
class RelationalRows:
    """Tiles of rows with the steps of each: relations that any of its rows has. Tiles with the most steps come first.

    Relations may be split into groups, whose rows are tiled apart: rows that have the same few relations of a group are
    many, so that a step has fewer rows without its relation, and no tile has more steps than a group has relations. A
    row is then the sum of a piece for each group that it has relations of. Rows without edges have no place.
    """

    tile: int
    """Rows of a tile, a multiple of `GROUP` of at most 32 of these."""
    places: NDArray[np.int32]
    """(tiles, tile) row of Y of each row of the tiles, or -1 in padding."""
    starts: NDArray[np.int32]
    """(tiles + 1,) first step of each tile."""
    steps: NDArray[np.int32]
    """(s, 2) relation of each step, rising in a tile; and bit i where any of the rows i `GROUP` to (i + 1) `GROUP` - 1
    of the tile has it."""
    neighbours: NDArray[np.int32]
    """(s, tile) row of X of the edge of a step's relation to a row, or -1."""
    positions: NDArray[np.int32]
    """(s, tile) position of this edge in the wide CSR of the matrix, or -1."""

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.neighbours.size

    @classmethod
    def of(cls, matrix: RelationalCsr, tile: int, splits: int = 1) -> RelationalRows:
        """Lay a matrix out for which `why_not_rows` says nothing. O(nnz log nnz + splits I log I) time.

        Parameters
        ----------
        matrix : RelationalCsr
        tile : int
            Rows of a tile.
        splits : int
            Groups of relations; the most frequent relations are the first group.
        """
        relation, rows, cols = matrix.edges
        by_count = np.argsort(-np.bincount(relation, minlength=matrix.relations), kind="stable")
        places: list[NDArray[np.int64]] = []
        at = np.empty(matrix.nnz, np.int64)  # place of each edge's row, in the tiles of its group
        first = 0
        for group in np.array_split(by_count, splits):
            # The rarest relation of the group is the highest bit of the Gray code.
            rank = np.full(matrix.relations, -1)
            rank[group] = np.arange(group.size)
            mine = np.flatnonzero(rank[relation] >= 0)
            code = np.bincount(rows[mine], 2.0 ** rank[relation[mine]], matrix.num_rows).astype(np.int64)
            order = np.flatnonzero(code)
            for shift in (1, 2, 4, 8, 16):
                code ^= code >> shift
            order = order[np.argsort(code[order], kind="stable")]
            where = np.empty(matrix.num_rows, np.int64)
            where[order] = first + np.arange(order.size)
            at[mine] = where[rows[mine]]
            places.append(np.pad(order, (0, -order.size % tile), constant_values=-1))
            first += places[-1].size
        every = np.concatenate(places).astype(np.int32).reshape(-1, tile)

        # Long work first, so that the last thread blocks are short.
        of_tile, _ = np.divmod(np.unique(at // tile * matrix.relations + relation), matrix.relations)
        counts = np.bincount(of_tile, minlength=len(every))
        moved = np.argsort(-counts, kind="stable")
        turn = np.empty(moved.size, np.int64)
        turn[moved] = np.arange(moved.size)
        keys, step = np.unique(turn[at // tile] * matrix.relations + relation, return_inverse=True)
        neighbours, positions = np.full((2, keys.size, tile), -1, np.int32)
        neighbours[step, at % tile] = cols
        positions[step, at % tile] = np.arange(matrix.nnz, dtype=np.int32)
        has = (neighbours >= 0).reshape(keys.size, tile // GROUP, GROUP).any(axis=2)
        live = has @ (1 << np.arange(tile // GROUP))
        return cls(
            tile,
            every[moved],
            offsets(counts[moved], np.int32),
            np.stack([keys % matrix.relations, live], axis=1).astype(np.int32),
            neighbours,
            positions,
        )

    def dealt(self, blocks: int) -> tuple[RelationalRows, NDArray[np.int64]]:
        """Deal tiles to thread blocks, the longest first, each to the one that has the least to do.

        Parameters
        ----------
        blocks : int
            Thread blocks; where tiles are fewer, each is of a thread block of its own.

        Returns
        -------
        RelationalRows
            Tiles of a thread block are side by side.
        (blocks + 1,) int64
            First tile of each thread block. O(tiles log blocks + stored) time.
        """
        counts = np.diff(self.starts)
        loads = [(0, block) for block in range(min(blocks, counts.size))]
        owner = np.empty(counts.size, np.int64)
        for tile, count in enumerate(counts.tolist()):
            load, owner[tile] = loads[0]
            heapreplace(loads, (load + count + 1, int(owner[tile])))  # to write rows takes about as long as a step
        turn = np.argsort(owner, kind="stable")
        of_tile, at = numbered(np, counts[turn], int(counts.sum()))
        step = self.starts[turn][of_tile] + at
        taken = (each[step] for each in (self.steps, self.neighbours, self.positions))
        held = RelationalRows(self.tile, self.places[turn], offsets(counts[turn], np.int32), *taken)
        return held, np.searchsorted(owner[turn], np.arange(len(loads) + 1))
