"""Seeded matrices of six kinds, for labels and samples that predictors are trained on: 420, and 1,002 smaller ones.

The number in the name seeds sizes, densities and skews, over the ranges of SuiteSparse's matrices. Each kind stands for
a structure that decides between formats. All are synthetic and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, RawMatrix, Source, csr_from_edges, known, only
from spmark.records.schema import MatrixKind

EACH = 70
_LEAST_ROWS = 2_000
_MOST_NNZ = 12_000_000
Edges = tuple[NDArray[np.int64], NDArray[np.int64]]


class _Draws:
    """Uniform numbers by PCG64's raw output, so that NumPy's version does not matter."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64(list(key))

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Give (count,) float64 in [0, 1)."""
        raw: NDArray[np.uint64] = np.asarray(self._bits.random_raw(count))
        return np.asarray((raw >> np.uint64(11)) * 2.0**-53, np.float64)

    def between(self, low: float, high: float) -> float:
        """Give one number, uniform in its logarithm."""
        return float(low * (high / low) ** self.uniform(1)[0])

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """Give (count,) int64 in [0, bound)."""
        return (self.uniform(count) * bound).astype(np.int64)


def _power_law(rows: int, draws: _Draws) -> Edges:
    """Row lengths fall as a power of the rank, and so do the popularities of columns."""
    mean, slope, columns = draws.between(2, 40), draws.between(0.5, 1.2), draws.between(1, 4)
    weights = (np.arange(rows) + 1.0) ** -slope
    edges = _most(rows * mean)
    lengths = np.minimum(np.ceil(weights * edges / weights.sum()), rows // 2).astype(np.int64)
    row = np.repeat(np.argsort(draws.uniform(rows), kind="stable"), lengths)
    return row, (rows * draws.uniform(row.size) ** columns).astype(np.int64)


def _banded(rows: int, draws: _Draws) -> Edges:
    """Columns within a band around the diagonal, part of it filled."""
    half = int(draws.between(2, 200))
    filled = draws.between(0.05, 1.0)
    row = np.repeat(np.arange(rows), max(1, int(_most(rows * 2 * half * filled) / rows)))
    return row, np.clip(row - half + draws.below(2 * half + 1, row.size), 0, rows - 1)


def _blocks(rows: int, draws: _Draws) -> Edges:
    """Dense squares at random multiples of their size, some of their elements missing."""
    side = int(2 ** (2 + draws.below(5, 1)[0]))
    filled = draws.between(0.3, 1.0)
    count = max(1, int(_most(rows * draws.between(4, 40)) / (side * side * filled)))
    grid = -(-rows // side)
    top, left = draws.below(grid, count), draws.below(grid, count)
    inside = np.arange(side * side)
    row = (top[:, None] * side + inside // side).reshape(-1)
    col = (left[:, None] * side + inside % side).reshape(-1)
    kept = (draws.uniform(row.size) < filled) & (row < rows) & (col < rows)
    return row[kept], col[kept]


def _mesh(rows: int, draws: _Draws) -> Edges:
    """Neighbours in a grid of two or three dimensions: stencils of 5, 9, 7 or 27 points."""
    dimensions, corners = 2 + int(draws.below(2, 1)[0]), bool(draws.below(2, 1)[0])
    side = max(2, round(rows ** (1 / dimensions)))
    steps = np.array(np.meshgrid(*[[-1, 0, 1]] * dimensions)).reshape(dimensions, -1).T
    if not corners:
        steps = steps[np.abs(steps).sum(1) <= 1]
    points = np.arange(min(rows, side**dimensions))
    place = np.array([points // side**axis % side for axis in range(dimensions)])
    edges = []
    for step in steps:
        there = place + step[:, None]
        inside = ((there >= 0) & (there < side)).all(0)
        to = sum(there[axis] * side**axis for axis in range(dimensions))
        inside &= np.asarray(to) < rows
        edges.append((points[inside], np.asarray(to)[inside]))
    return np.concatenate([rows for rows, _ in edges]), np.concatenate([cols for _, cols in edges])


def _random(rows: int, draws: _Draws) -> Edges:
    """Every element equally likely."""
    count = _most(rows * draws.between(1, 60))
    return draws.below(rows, count), draws.below(rows, count)


def _hyper_sparse(rows: int, draws: _Draws) -> Edges:
    """Few rows have non-zeros, and some of these rows have many."""
    used = max(1, int(rows * draws.between(0.005, 0.3)))
    count = _most(rows * draws.between(0.05, 2))
    row = (used * draws.uniform(count) ** draws.between(1, 3)).astype(np.int64)
    return np.argsort(draws.uniform(rows), kind="stable")[row], draws.below(rows, count)


KINDS: Mapping[str, Callable[[int, _Draws], Edges]] = {
    "power_law": _power_law,
    "banded": _banded,
    "blocks": _blocks,
    "mesh": _mesh,
    "random": _random,
    "hyper_sparse": _hyper_sparse,
}


def _most(count: float) -> int:
    return int(min(count, _MOST_NNZ))


class Seeded(Source):
    """Matrices ``<kind>_<number>``; square, with values drawn by the sweep's seed."""

    name = "seeded"
    title = "seeded matrices for training predictors"
    citation = "six kinds of formulas, no publication"
    each: ClassVar[int] = EACH
    """Matrices of a kind."""
    key: ClassVar[tuple[int, ...]] = ()
    """Draws other matrices of the same names."""
    most_rows: ClassVar[int] = 1_000_000

    def names(self, cache: Cache) -> Sequence[str]:
        """List all names, kinds by turns, so that the first names are a fair sample."""
        return [f"{kind}_{number:02d}" for number in range(self.each) for kind in KINDS]

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw a matrix. Takes no arguments."""
        where = f"{self.name}/{name}"
        only(where, args)
        known(self.name, name, self.names(cache))
        kind, _, number = name.rpartition("_")
        draws = _Draws(list(KINDS).index(kind), int(number), *self.key)
        rows = int(draws.between(_LEAST_ROWS, self.most_rows))
        row, col = KINDS[kind](rows, draws)
        shape = (rows, rows)
        return csr_from_edges(shape, row, col, None, MatrixKind.SYNTHETIC, merge=True, where=where)


class SeededSmall(Seeded):
    """The same of at most 50,000 rows, 167 of each kind: as many as DASH's largest set of target matrices, and two."""

    name = "seeded_small"
    title = "smaller seeded matrices for training predictors"
    each = 167
    key = (1,)
    most_rows = 50_000
