"""The output-stationary form of a matrix with few relations: tiles of rows, and their neighbour in each relation.

For maps of sparse convolutions, in which a relation reaches a row once. Rows of one tile should have the same
relations: rows are sorted by their set of relations in the order of a Gray code, in which neighbouring sets differ
little (Tang, Yang, Liu, Hong, Yu, Li, Dai, Wang and Han, "TorchSparse++", MICRO 2023, sorts by the plain number).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import openings
from spmark.impls.core.relational import RelationalCsr

MAX_RELATIONS = 32
"""A set of relations is one word."""
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
    """Tiles of rows, those with the most relations first; the last rows of all are padding."""

    name: ClassVar[str] = "relational_rows"

    relations: int
    tile: int
    """Rows of a tile, a multiple of `GROUP`."""
    places: NDArray[np.int32]
    """(n,) row of Y of each row of the tiles, or -1 in padding; n a multiple of ``tile``."""
    sets: NDArray[np.uint32]
    """(n / GROUP,) the relations that any of so many rows have: bit r for relation r."""
    neighbours: NDArray[np.int32]
    """(R, n) row of X of the edge of a relation to a row, or -1."""
    positions: NDArray[np.int32]
    """(R, n) position of this edge in the wide CSR of the matrix, or -1."""

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.neighbours.size

    @classmethod
    def of(cls, matrix: RelationalCsr, tile: int) -> RelationalRows:
        """Lay a matrix out for which `why_not_rows` says nothing. O(nnz + I log I) time."""
        relation, rows, cols = matrix.edges
        # The rarest relation is the highest bit of the Gray code.
        rank = np.empty(matrix.relations, np.int64)
        counts = np.bincount(relation, minlength=matrix.relations)
        rank[np.argsort(-counts, kind="stable")] = np.arange(matrix.relations)
        code = np.zeros(matrix.num_rows, np.int64)
        np.bitwise_or.at(code, rows, np.int64(1) << rank[relation])
        for shift in (1, 2, 4, 8, 16):
            code ^= code >> shift
        order = np.argsort(code, kind="stable")
        padded = -(-matrix.num_rows // tile) * tile
        places = np.full(padded, -1, np.int32)
        places[: order.size] = order
        where = np.empty(matrix.num_rows, np.int64)
        where[order] = np.arange(matrix.num_rows)

        sets = np.zeros(padded, np.uint32)
        np.bitwise_or.at(sets, where[rows], np.uint32(1) << relation.astype(np.uint32))
        of_tiles = np.bitwise_or.reduce(sets.reshape(-1, tile), axis=1)
        # Long work first, so that the last thread blocks are short.
        counts = np.unpackbits(of_tiles.view(np.uint8).reshape(-1, 4), axis=1).sum(axis=1, dtype=np.int64)
        first = np.argsort(-counts, kind="stable")
        moved = (first[:, None] * tile + np.arange(tile)).reshape(-1)
        neighbours, positions = np.full((2, matrix.relations, padded), -1, np.int32)
        neighbours[relation, where[rows]] = cols
        positions[relation, where[rows]] = np.arange(matrix.nnz, dtype=np.int32)
        return cls(
            matrix.relations,
            tile,
            places[moved],
            np.bitwise_or.reduce(sets[moved].reshape(-1, GROUP), axis=1),
            np.ascontiguousarray(neighbours[:, moved]),
            np.ascontiguousarray(positions[:, moved]),
        )
