"""Tiles: a matrix as dense blocks of gathered columns, padded rows and runs of non-zeros, of many shapes at once.

The hybrid storage of Fang, Shen, Wang and Chen, "STile: Searching Hybrid Sparse Formats for Sparse Deep Learning
Operators Automatically", SIGMOD 2024, sections 2.2 and 3.1. Which tile has a non-zero is given (`Selection`); each has
exactly one, so that the sum of the tiles is the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.formats.decompose import RowUse, row_use
from spmark.impls.formats.limits import MAX_STORED, check_stored

BLOCK, ELL, RUN = 0, 1, 2
"""Kinds of tiles: rows of a window by gathered columns, zeros kept; padded rows; runs of non-zeros without padding."""
GROUP = 16
"""Columns that a block tile grows by."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Which tile has which non-zero."""

    owner: NDArray[np.int32]
    """(nnz,) tile of each non-zero, in CSR order."""
    kind: NDArray[np.int8]
    """(T,) `BLOCK`, `ELL` or `RUN`; every tile has at least one non-zero."""
    height: NDArray[np.int32]
    """(T,) most rows."""
    width: NDArray[np.int32]
    """(T,) most non-zeros of a row (ELL); for blocks and runs what tells their kernels apart."""
    window: NDArray[np.int32]
    """(T,) window of a block, -1 for the others; blocks of one window and width are summed together."""
    window_rows: NDArray[np.int32]
    """(W, tallest) rows of each window, -1 where it has fewer."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Panels of block tiles of one height and width; a panel sums all tiles of its window."""

    rows: NDArray[np.int32]
    """(p, R) rows of A, -1 where there is none or the panel has nothing of it."""
    indptr: NDArray[np.int32]
    """(p + 1,) groups of each panel."""
    indices: NDArray[np.int32]
    """(g, 16) columns, rising through a panel; the last one is repeated in what fills its last group."""
    values: NDArray[np.float32]
    """(g, R, 16) row-major."""
    held: NDArray[np.int32]
    """(n,) non-zeros, in CSR order of A, that are stored."""
    places: NDArray[np.int64]
    """(n,) where each is in ``values.reshape(-1)``."""


@dataclass(frozen=True, eq=False)
class Rows:
    """ELL tiles of one height and width."""

    rows: NDArray[np.int32]
    """(t, R) row of A of each row of a tile, -1 where there is none; a folded row stands several times."""
    indices: NDArray[np.int32]
    """(t, R, w) columns; padding repeats the row's last column, or is 0 where there is no row."""
    values: NDArray[np.float32]
    """(t, R, w); padding is 0."""
    held: NDArray[np.int32]
    """(n,) as of `Blocks`."""
    places: NDArray[np.int64]
    """(n,)."""


@dataclass(frozen=True, eq=False)
class Runs:
    """One-dimensional tiles."""

    indptr: NDArray[np.int32]
    """(t + 1,) elements of each tile."""
    rows: NDArray[np.int32]
    """(n,) row of each element."""
    indices: NDArray[np.int32]
    """(n,) its column."""
    values: NDArray[np.float32]
    """(n,)."""
    held: NDArray[np.int32]
    """(n,) as of `Blocks`."""


@dataclass(frozen=True, eq=False)
class TileFormat:
    """A matrix in tiles."""

    name: ClassVar[str] = "tiles"

    shape: tuple[int, int]
    """(I, K)."""
    nnz: int
    blocks: Mapping[tuple[int, int], Blocks]
    """By height and width of their tiles."""
    ell: Mapping[tuple[int, int], Rows]
    """By height and width."""
    runs: Runs | None

    @classmethod
    def from_csr(cls, matrix: Csr, selection: Selection, max_stored: int = MAX_STORED) -> TileFormat:
        """Lay out tiles.

        Parameters
        ----------
        matrix : Csr
        selection : Selection
        max_stored : int
            Most elements that may be held.

        Returns
        -------
        TileFormat
            O(nnz log nnz + stored).

        Raises
        ------
        BuildError
            A non-zero has no tile, a row is not in its block's window, an ELL tile has more rows than it may, or more
            than ``max_stored`` elements would be held.
        """
        owner = selection.owner
        if owner.shape != (matrix.nnz,) or (owner.size and not 0 <= owner.min() <= owner.max() < selection.kind.size):
            raise BuildError(
                f"expected a tile out of {selection.kind.size} for each of {matrix.nnz:,} non-zeros, found "
                f"{owner.size:,} numbers from {owner.min(initial=0)} to {owner.max(initial=0)}"
            )
        row_of = np.repeat(np.arange(matrix.num_rows, dtype=np.int32), matrix.row_lengths)
        kind, shape_of = selection.kind[owner], (selection.height[owner], selection.width[owner])
        blocks: dict[tuple[int, int], Blocks] = {}
        ell: dict[tuple[int, int], Rows] = {}
        room = max_stored
        for which in (BLOCK, ELL):
            of_kind = np.flatnonzero(kind == which)
            for height, width in sorted(set(zip(*(a[of_kind].tolist() for a in shape_of), strict=True)), reverse=True):
                at = of_kind[(shape_of[0][of_kind] == height) & (shape_of[1][of_kind] == width)]
                if which == BLOCK:
                    blocks[height, width] = _blocks(matrix, row_of, selection, at, height, room)
                    room -= blocks[height, width].values.size
                else:
                    ell[height, width] = _ell(matrix, row_of, selection, at, (height, width), room)
                    room -= ell[height, width].values.size
        return cls(matrix.shape, matrix.nnz, blocks, ell, _runs(matrix, row_of, owner, np.flatnonzero(kind == RUN)))

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return sum(part.values.size for part in self._parts()) + (self.runs.values.size if self.runs else 0)

    @property
    def use(self) -> RowUse:
        """Which rows several tiles add into, and which none writes."""
        pieces = [part.rows[part.rows >= 0] for part in self._parts()]
        if self.runs:
            tile = np.repeat(np.arange(self.runs.indptr.size - 1), np.diff(self.runs.indptr))
            pieces.append(np.unique(np.stack([tile, self.runs.rows]), axis=1)[1].astype(np.int32))
        return row_use(self.shape[0], pieces)

    def _parts(self) -> list[Blocks | Rows]:
        return [*self.blocks.values(), *self.ell.values()]

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give every array, named by kind, shape and role, such as ``block_16x64_indices``."""
        named: dict[str, NDArray[Any]] = {}
        for name, parts in (("block", self.blocks), ("ell", self.ell)):
            for (height, width), part in parts.items():
                named |= {f"{name}_{height}x{width}_{role}": array for role, array in vars(part).items()}
        if self.runs:
            named |= {f"run_{role}": array for role, array in vars(self.runs).items()}
        return named

    def to_csr(self) -> Csr:
        """Give the matrix back. O(stored)."""
        rows, indices = np.zeros(self.nnz, np.int32), np.zeros(self.nnz, np.int32)
        values = np.zeros(self.nnz, np.float32)
        for blocks in self.blocks.values():
            high = blocks.rows.shape[1]
            group, inside = np.divmod(blocks.places, high * GROUP)
            row, slot = np.divmod(inside, GROUP)
            panel = np.repeat(np.arange(blocks.rows.shape[0]), np.diff(blocks.indptr))
            rows[blocks.held] = blocks.rows[panel[group], row]
            indices[blocks.held] = blocks.indices[group, slot]
            values[blocks.held] = blocks.values.reshape(-1)[blocks.places]
        for ell in self.ell.values():
            rows[ell.held] = ell.rows.reshape(-1)[ell.places // ell.indices.shape[2]]
            indices[ell.held] = ell.indices.reshape(-1)[ell.places]
            values[ell.held] = ell.values.reshape(-1)[ell.places]
        if self.runs:
            rows[self.runs.held], indices[self.runs.held] = self.runs.rows, self.runs.indices
            values[self.runs.held] = self.runs.values
        indptr = np.zeros(self.shape[0] + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=self.shape[0]), out=indptr[1:])
        return Csr(self.shape, indptr, indices, values)


def _numbered(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the number of each element's run of equal keys, and where each run begins."""
    starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    return np.cumsum(np.bincount(starts, minlength=keys.size)) - 1, starts


def _blocks(  # noqa: PLR0917
    matrix: Csr, row_of: NDArray[np.int32], selection: Selection, at: NDArray[np.int64], height: int, room: int
) -> Blocks:
    window = selection.window[selection.owner[at]].astype(np.int64)
    at = at[np.argsort(window * matrix.num_cols + matrix.indices[at], kind="stable")]
    window = selection.window[selection.owner[at]].astype(np.int64)
    columns, first_of_column = _numbered(window * matrix.num_cols + matrix.indices[at])
    panel, first_of_panel = _numbered(window)
    column_of_panel = columns[first_of_panel]
    lengths = np.diff(np.append(column_of_panel, first_of_column.size))
    groups = -(-lengths // GROUP)
    indptr = np.concatenate([[0], np.cumsum(groups)])
    check_stored(f"block tiles of {height} rows", matrix, int(indptr[-1]) * height * GROUP, room)
    slot_of_column = np.arange(first_of_column.size) + np.repeat(indptr[:-1] * GROUP - column_of_panel, lengths)
    named = matrix.indices[at[first_of_column]]
    indices = np.repeat(named[column_of_panel + lengths - 1], groups * GROUP)
    indices[slot_of_column] = named
    windows = window[first_of_panel]
    rows = selection.window_rows[windows, :height]
    row = _row_within(matrix, row_of, rows, panel, at)
    used = np.zeros(rows.shape, np.bool_)
    used[panel, row] = True
    slot = slot_of_column[columns]
    places = (slot // GROUP) * (height * GROUP) + row * GROUP + slot % GROUP
    values = np.zeros((int(indptr[-1]), height, GROUP), np.float32)
    values.reshape(-1)[places] = matrix.values[at]
    return Blocks(
        np.where(used, rows, np.int32(-1)),
        indptr.astype(np.int32),
        indices.reshape(-1, GROUP),
        values,
        at.astype(np.int32),
        places,
    )


def _row_within(
    matrix: Csr, row_of: NDArray[np.int32], rows: NDArray[np.int32], panel: NDArray[np.int64], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Find each non-zero's row among those of its panel."""
    here = np.argmax(rows[panel] == row_of[at, None], axis=1) if at.size else np.zeros(0, np.int64)
    wrong = np.flatnonzero(rows[panel, here] != row_of[at])
    if wrong.size:
        row = int(row_of[at[wrong[0]]])
        raise BuildError(
            f"expected every row of a block tile in its window, found row {row} of {matrix.num_rows} outside"
        )
    return here


def _ell(  # noqa: PLR0917
    matrix: Csr,
    row_of: NDArray[np.int32],
    selection: Selection,
    at: NDArray[np.int64],
    shape: tuple[int, int],
    room: int,
) -> Rows:
    height, width = shape
    at = at[np.argsort(selection.owner[at], kind="stable")]
    tile, first_of_tile = _numbered(selection.owner[at].astype(np.int64))
    run, first_of_run = _numbered(tile * matrix.num_rows + row_of[at])
    slot = np.arange(at.size) - first_of_run[run]
    piece, first_of_piece = _numbered(run * matrix.nnz + slot // width)
    row_in_tile = piece - piece[first_of_tile][tile]
    if row_in_tile.max(initial=0) >= height:
        raise BuildError(f"expected at most {height} rows of {width} in an ELL tile, found {row_in_tile.max() + 1}")
    count = first_of_tile.size
    check_stored(f"ELL tiles of {height} x {width}", matrix, count * height * width, room)
    line = tile * height + row_in_tile
    places = line * width + slot % width
    rows = np.full(count * height, -1, np.int32)
    rows[line] = row_of[at]
    last = np.append(first_of_piece[1:], at.size) - 1
    indices = np.zeros((count * height, width), np.int32)
    indices[line[first_of_piece]] = matrix.indices[at[last], None]
    indices.reshape(-1)[places] = matrix.indices[at]
    values = np.zeros(count * height * width, np.float32)
    values[places] = matrix.values[at]
    packed = (count, height, width)
    return Rows(
        rows.reshape(count, height), indices.reshape(packed), values.reshape(packed), at.astype(np.int32), places
    )


def _runs(matrix: Csr, row_of: NDArray[np.int32], owner: NDArray[np.int32], at: NDArray[np.int64]) -> Runs | None:
    if not at.size:
        return None
    at = at[np.argsort(owner[at], kind="stable")]
    _, first = _numbered(owner[at].astype(np.int64))
    indptr = np.append(first, at.size).astype(np.int32)
    return Runs(indptr, row_of[at], matrix.indices[at], matrix.values[at], at.astype(np.int32))
