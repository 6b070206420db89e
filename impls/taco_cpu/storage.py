"""Storage of A level by level, each compressed or uncompressed, in the order of the loops over A.

A level maps a position of the level above and a coordinate to a position of its own: Chou, Kjolstad and Amarasinghe,
"Format abstraction for sparse tensor algebra compilers", OOPSLA 2018, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets, openings
from spmark.impls.taco_cpu.space import LEVELS

_POSITION_BYTES = 4
"""What a position of a level takes in the array below it, at least: an int32 bound or a float32 value."""


@dataclass(frozen=True, eq=False)
class StoredLevel:
    """One level: uncompressed, with a position for each coordinate; or compressed, with those that A has."""

    loop: str
    extent: int
    """Number of coordinates."""
    pos: NDArray[np.int32] | None = None
    """Compressed: positions ``pos[p]:pos[p + 1]`` lie below position p of the level above."""
    crd: NDArray[np.int32] | None = None
    """Compressed: the coordinate of each position, rising below one position of the level above."""


@dataclass(frozen=True, eq=False)
class LevelFormat:
    """A as a tree of levels.

    A position of the last level is a stored element. Where uncompressed levels have positions that A has no element
    for, the value is 0 and the entry is -1: padding is known by position, never by its value.
    """

    name: ClassVar[str] = "levels"

    shape: tuple[int, int]
    """(I, K)."""
    splits: tuple[int, int]
    """Iterations of the loops i0 and k0."""
    levels: tuple[StoredLevel, ...]
    """In storage order."""
    values: NDArray[np.float32]
    """(stored,) float32, by position of the last level."""
    entries: NDArray[np.int32]
    """(stored,) int32: the position of each element in A's CSR order, -1 for padding."""

    @classmethod
    def from_csr(
        cls, matrix: Csr, order: Sequence[str], compressed: Set[str], splits: tuple[int, int], most_bytes: int
    ) -> LevelFormat:
        """Store a matrix.

        Parameters
        ----------
        matrix : Csr
        order : sequence of str
            The levels in storage order: i1 and k1, and i0 and k0 where these have more than one coordinate.
        compressed : set of str
            Those that are compressed.
        splits : (int, int)
            Iterations of i0 and k0.
        most_bytes : int
            Bytes that the positions of an uncompressed level may take; the bytes of the CSR, where these are more.

        Returns
        -------
        LevelFormat
            O(nnz + stored); O(nnz log nnz) where a level of k stands above one of i.

        Raises
        ------
        BuildError
            An uncompressed level would take more; says how much.
        """
        coordinates, extents = _split(matrix, splits)
        entries = _sorted([coordinates[loop] for loop in order], [extents[loop] for loop in order], matrix.nnz)
        most_bytes = max(most_bytes, matrix.nbytes)
        levels: list[StoredLevel] = []
        position, size = np.zeros(matrix.nnz, np.int64), 1
        for loop in order:
            coordinate, extent = coordinates[loop][entries], extents[loop]
            if loop in compressed:
                begins = openings(position) | openings(coordinate)
                levels.append(StoredLevel(loop, extent, _bounds(position[begins], size), coordinate[begins]))
                position, size = np.cumsum(begins) - 1, int(np.count_nonzero(begins))
            else:
                position, size = position * extent + coordinate, size * extent
                levels.append(StoredLevel(loop, extent))
                _check_bytes(levels, size, most_bytes, matrix)
        values, stored_entries = np.zeros(size, np.float32), np.full(size, -1, np.int32)
        values[position], stored_entries[position] = matrix.values[entries], entries
        return cls(matrix.shape, splits, tuple(levels), values, stored_entries)

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.values.size

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``pos`` and ``crd`` of every compressed level, as in ``pos_k1``, then ``values`` and ``entries``."""
        held = {f"pos_{level.loop}": level.pos for level in self.levels}
        held |= {f"crd_{level.loop}": level.crd for level in self.levels}
        return {**{k: v for k, v in held.items() if v is not None}, "values": self.values, "entries": self.entries}

    def to_csr(self) -> Csr:
        """Give the matrix back: each element's coordinates are read on the way from the last level up. O(stored)."""
        stored = np.flatnonzero(self.entries >= 0)
        found = {loop: np.zeros(stored.size, np.int64) for loop in LEVELS}
        position = stored
        for level in reversed(self.levels):
            if level.pos is None or level.crd is None:
                position, found[level.loop] = np.divmod(position, level.extent)
            else:
                found[level.loop] = level.crd[position].astype(np.int64)
                position = np.searchsorted(level.pos, position, side="right") - 1
        rows, columns = (found[f"{x}1"] * split + found[f"{x}0"] for x, split in zip("ik", self.splits, strict=True))
        entries = self.entries[stored]
        indices, values = np.empty(stored.size, np.int32), np.empty(stored.size, np.float32)
        indices[entries], values[entries] = columns, self.values[stored]
        indptr = offsets(np.bincount(rows, minlength=self.shape[0])).astype(np.int32)
        return Csr(self.shape, indptr, indices, values)


def _split(matrix: Csr, splits: tuple[int, int]) -> tuple[dict[str, NDArray[np.int32]], dict[str, int]]:
    """Give the coordinates of every non-zero at each level, (nnz,) int32 in CSR order, and the levels' extents."""
    coordinates, extents = dict[str, NDArray[np.int32]](), dict[str, int]()
    indices = (matrix.rows_of_entries(), matrix.indices)
    for index, along, length, split in zip("ik", indices, matrix.shape, splits, strict=True):
        coordinates[f"{index}1"], coordinates[f"{index}0"] = np.divmod(along, np.int32(split))
        extents[f"{index}1"], extents[f"{index}0"] = -(-length // split), split
    return coordinates, extents


def _sorted(coordinates: Sequence[NDArray[np.int32]], extents: Sequence[int], nnz: int) -> NDArray[np.int32]:
    """Give the positions of the non-zeros in CSR order, sorted by their coordinates, the first level's first."""
    key = np.zeros(nnz, np.int64)
    for along, extent in zip(coordinates, extents, strict=True):
        key = key * extent + along
    if (key[1:] >= key[:-1]).all():
        return np.arange(nnz, dtype=np.int32)
    return np.argsort(key, kind="stable").astype(np.int32)


def _bounds(parents: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Give where the children of each of ``size`` positions begin and the last ones end, (size + 1,) int32.

    Parameters
    ----------
    parents : (n,) int64
        The position of each child's parent, never falling.
    """
    first = np.flatnonzero(openings(parents))
    bounds = np.zeros(size + 1, np.int32)
    bounds[parents[first] + 1] = np.diff(first, append=parents.size)
    return np.cumsum(bounds, out=bounds)


def _check_bytes(levels: Sequence[StoredLevel], size: int, most_bytes: int, matrix: Csr) -> None:
    if size * _POSITION_BYTES > most_bytes:
        names = " ".join(level.loop + ("u" if level.pos is None else "c") for level in levels)
        num_rows, num_cols = matrix.shape
        raise BuildError(
            f"levels {names} of a {num_rows} x {num_cols} matrix with {matrix.nnz:,} non-zeros: expected the "
            f"uncompressed level {levels[-1].loop} to take at most {most_bytes:,} bytes, found "
            f"{size * _POSITION_BYTES:,}: compress it, or raise most_bytes"
        )
