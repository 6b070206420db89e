"""The six primitives that tiles are made with, as functions that compose, and the way back from any composition.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, table 2. A `View` renames rows and columns; what it holds keeps its
place in A, so that `restore` undoes whatever was done. The search does the same in compiled loops (`windows.py`,
`levels.py`): this is what they are tested against.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr


class Axis(IntEnum):
    """What is reordered or divided."""

    ROWS = 0
    COLUMNS = 1


@dataclass(frozen=True, eq=False)
class View:
    """Some non-zeros of A in rows and columns of their own, in row-major order of these."""

    shape: tuple[int, int]
    """Rows and columns (slots, after `squeeze`) of the view."""
    rows: NDArray[np.int32]
    """(n,) row of the view."""
    slots: NDArray[np.int32]
    """(n,) its column, or its slot."""
    row_of: NDArray[np.int32]
    """(n,) row of A."""
    col_of: NDArray[np.int32]
    """(n,) column of A."""
    at: NDArray[np.int32]
    """(n,) place in A's CSR order."""
    squeezed: bool = False

    @classmethod
    def of(cls, matrix: Csr) -> View:
        """See a whole matrix as it stands."""
        rows = np.repeat(np.arange(matrix.num_rows, dtype=np.int32), matrix.row_lengths)
        return cls(matrix.shape, rows, matrix.indices, rows, matrix.indices, np.arange(matrix.nnz, dtype=np.int32))

    def counts(self, axis: Axis) -> NDArray[np.int64]:
        """Count non-zeros of every row or column."""
        return np.bincount((self.rows, self.slots)[axis], minlength=self.shape[axis])

    def _at(
        self, shape: tuple[int, int], rows: NDArray[np.int32], slots: NDArray[np.int32], kept: NDArray[np.int64]
    ) -> View:
        ranked = np.lexsort((slots, rows))
        row_of, col_of, at = (array[kept[ranked]] for array in (self.row_of, self.col_of, self.at))
        return View(shape, rows[ranked], slots[ranked], row_of, col_of, at, self.squeezed)


def reorder(view: View, axis: Axis) -> View:
    """Order rows or columns by their non-zeros, most first; equal ones keep their order (primitive 1). O(n log n)."""
    place = np.empty(view.shape[axis], np.int32)
    place[np.argsort(-view.counts(axis), kind="stable")] = np.arange(place.size, dtype=np.int32)
    every = np.arange(view.rows.size)
    if axis is Axis.ROWS:
        return view._at(view.shape, place[view.rows], view.slots, every)
    return view._at(view.shape, view.rows, place[view.slots], every)


def divide(view: View, axis: Axis, size: int) -> list[View]:
    """Divide into parts of ``size`` rows or columns, the last one smaller, empty ones kept (primitive 2).

    Raises
    ------
    ValueError
        A size below 1.
    """
    if size < 1:
        raise ValueError(f"expected parts of at least one row or column, found {size}")
    place = (view.rows, view.slots)[axis]
    parts = []
    for first in range(0, view.shape[axis], size):
        kept = np.flatnonzero((place >= first) & (place < first + size))
        length = min(size, view.shape[axis] - first)
        rows, slots = view.rows[kept], view.slots[kept]
        if axis is Axis.ROWS:
            parts.append(view._at((length, view.shape[1]), rows - np.int32(first), slots, kept))
        else:
            parts.append(view._at((view.shape[0], length), rows, slots - np.int32(first), kept))
    return parts


def squeeze(view: View) -> View:
    """Push the non-zeros of every row together to the left (primitive 3)."""
    first = np.concatenate([[0], np.cumsum(view.counts(Axis.ROWS))])
    slots = (np.arange(view.rows.size) - first[view.rows]).astype(np.int32)
    return replace(view, shape=(view.shape[0], int(slots.max(initial=-1)) + 1), slots=slots, squeezed=True)


def split(view: View, most: int) -> View:
    """Fold rows of more than ``most`` non-zeros over several rows (primitive 4).

    Raises
    ------
    ValueError
        The view is not squeezed, or ``most`` is below 1.
    """
    _expect_squeezed(view, "split")
    if most < 1:
        raise ValueError(f"expected rows of at least one non-zero, found {most}")
    pieces = np.maximum(-(-view.counts(Axis.ROWS) // most), 1)
    first = np.concatenate([[0], np.cumsum(pieces)])
    rows = (first[view.rows] + view.slots // most).astype(np.int32)
    slots = view.slots % np.int32(most)
    return replace(view, shape=(int(first[-1]), min(most, view.shape[1])), rows=rows, slots=slots)


def pad(view: View, rows: int, cols: int) -> View:
    """Grow to multiples of ``rows`` and ``cols`` (primitive 5); what is new holds nothing.

    Raises
    ------
    ValueError
        A multiple below 1.
    """
    if min(rows, cols) < 1:
        raise ValueError(f"expected multiples of at least 1, found {rows} and {cols}")
    height, width = view.shape
    return replace(view, shape=(-(-height // rows) * rows, -(-width // cols) * cols))


def flatten(view: View) -> View:
    """Store all non-zeros in one row, row after row (primitive 6).

    Raises
    ------
    ValueError
        The view is not squeezed: only non-zeros can be stored one after the other.
    """
    _expect_squeezed(view, "flatten")
    count = view.rows.size
    return replace(view, shape=(1, count), rows=np.zeros_like(view.rows), slots=np.arange(count, dtype=np.int32))


def restore(views: Iterable[View], matrix: Csr) -> Csr:
    """Put views together again: the inverse of every composition.

    Parameters
    ----------
    views : iterable of View
        What became of all of ``matrix``.
    matrix : Csr
        For its shape and values.

    Raises
    ------
    BuildError
        A non-zero is missing or stands twice.
    """
    held = list(views)
    at = np.concatenate([view.at for view in held]) if held else np.zeros(0, np.int32)
    times = np.bincount(at, minlength=matrix.nnz)
    wrong = np.flatnonzero(times != 1)
    if wrong.size:
        raise BuildError(
            f"expected each of {matrix.nnz:,} non-zeros once, found number {wrong[0]} {times[wrong[0]]} times"
        )
    rows, cols = np.empty(matrix.nnz, np.int32), np.empty(matrix.nnz, np.int32)
    for view in held:
        rows[view.at], cols[view.at] = view.row_of, view.col_of
    indptr = np.zeros(matrix.num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=matrix.num_rows), out=indptr[1:])
    return Csr(matrix.shape, indptr, cols, matrix.values)


def _expect_squeezed(view: View, what: str) -> None:
    if not view.squeezed:
        raise ValueError(f"{what}: expected a squeezed view, found one with zeros: squeeze it first")
