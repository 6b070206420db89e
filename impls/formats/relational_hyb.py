"""The 3-D hyb of a matrix of several relations: rows of each relation in ELL buckets, cut into groups of equal work.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.4: rows of A_r with up to 1, 2, 4, 8 or 16 edges are padded to this width. Longer ones are folded over several
rows of the widest bucket, of which the last is padded, too: with that, padding over stored elements is what tables 1
and 2 of the paper have. A group holds as many rows of one relation and width as fill its slots, so that a thread block
needs one weight matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import numbered, offsets, openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats import spans
from spmark.impls.formats.limits import check_stored

WIDEST = 16
"""Width of the widest bucket."""
WIDTHS = (1, 2, 4, 8, WIDEST)


def widths_of(matrix: RelationalCsr) -> tuple[int, ...]:
    """Give the bucket widths up to that of the most edges of a row and relation: of a map 1 alone. O(nnz)."""
    relation, rows, _ = matrix.edges
    first = np.flatnonzero(openings(rows) | openings(relation))
    longest = int(np.diff(first, append=matrix.nnz).max(initial=1))
    return tuple(width for width in WIDTHS if width < 2 * longest)


@dataclass(frozen=True, eq=False)
class RelationalHyb:
    """ELL rows of all relations in groups of ``slots`` elements; a padded slot has column and position -1."""

    relations: int
    slots: int
    """Elements of a group, padding included."""
    groups: NDArray[np.int32]
    """(g, 4) on the host: relation, width, number of the first ELL row, and slots in use; by relation, then width."""
    rows: DeviceArray
    """(r,) int32, row of A of each ELL row, or -1 where an ELL row only fills its group."""
    indices: DeviceArray
    """(g, slots) int32, columns, the rows of X."""
    positions: DeviceArray
    """(g, slots) int32, position of each element in the wide CSR of the matrix (`RelationalCsr.wide`)."""
    nnz: int

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return int(self.indices.size)

    @property
    def padding(self) -> float:
        """Stored elements over edges, minus 1; 0 without edges."""
        return self.stored / self.nnz - 1 if self.nnz else 0.0

    @classmethod
    def of(cls, matrix: RelationalCsr, slots: int, widest: int = WIDEST, *, xp: Any = np) -> RelationalHyb:
        """Lay a matrix out. O(nnz log nnz + R) work.

        Parameters
        ----------
        matrix : RelationalCsr
        slots : int
            Elements of a group: a power of two, at least `WIDEST`.
        widest : int
            Width of the widest bucket: a power of two up to `WIDEST`. With 1 nothing but groups is padded.
        xp : module
            NumPy or CuPy, whose arrays the result has, but for ``groups``: a GPU lays out millions of edges itself.

        Raises
        ------
        ValueError
            ``slots`` or ``widest`` is another number.
        BuildError
            Padding makes the matrix too large.
        """
        if slots < WIDEST or slots & (slots - 1):
            raise ValueError(f"expected slots as a power of two of at least {WIDEST}, found {slots}")
        if widest not in WIDTHS:
            raise ValueError(f"expected widest out of {WIDTHS}, found {widest}")
        wide = matrix.wide
        counts, place = _cut(xp, matrix, widest)

        # ELL rows of one relation and width stand together; each such bucket begins with a group of its own.
        in_use = counts * np.tile(WIDTHS, matrix.relations)
        groups_of = -(-in_use // slots)
        check_stored(f"3-D hyb with groups of {slots} slots", wide.shape, wide.nnz, int(groups_of.sum()) * slots)
        bucket, number = numbered(groups_of)
        relation, power = np.divmod(bucket, len(WIDTHS))
        ell_rows = slots >> power
        first_rows = offsets(ell_rows)
        used = np.minimum(slots, in_use[bucket] - number * slots)
        groups = np.stack([relation, 1 << power, first_rows[:-1], used], axis=1).astype(np.int32)

        first_groups = offsets(groups_of)[:-1]
        rows = xp.full(int(first_rows[-1]), -1, np.int32)
        positions, indices = xp.full((2, groups.shape[0] * slots), -1, np.int32)
        place(first_rows[first_groups], first_groups * slots, rows, indices, positions)
        columns, places = (each.reshape(-1, slots) for each in (indices, positions))
        return cls(matrix.relations, slots, groups, rows, columns, places, matrix.nnz)


def _cut(xp: Any, matrix: RelationalCsr, widest: int) -> tuple[NDArray[np.int64], Callable[..., None]]:
    """Count the ELL rows of each bucket, and give what places them. All are ``widest`` that come of a longer row.

    By sorting, since the threads of a GPU cannot take one row after the other. O(nnz log nnz) work.
    """
    nnz = matrix.nnz
    indptr, indices = (xp.asarray(each) for each in (matrix.wide.indptr, matrix.wide.indices))
    relation, cols = xp.divmod(indices, np.int32(matrix.num_cols))
    row_of, _ = spans.numbered(xp, indptr[1:] - indptr[:-1], nnz)
    first = xp.flatnonzero(openings(row_of) | openings(relation))
    lengths = spans.lengths(xp, first, nnz)
    power = xp.zeros(first.size, np.int64)
    for width in WIDTHS[: WIDTHS.index(widest)]:
        power += lengths > width
    begins, of = spans.cut(xp, first, nnz, widest)
    power = power[of]
    bucket = relation[begins] * len(WIDTHS) + power
    counts = xp.bincount(bucket, minlength=matrix.relations * len(WIDTHS))
    order = xp.argsort(bucket, kind="stable")
    turn = xp.empty(order.size, np.int64)  # how many ELL rows of its bucket stand before each
    turn[order] = xp.arange(order.size) - (xp.cumsum(counts) - counts)[bucket[order]]

    def place(row_at: Any, slot_at: Any, rows: Any, columns: Any, positions: Any) -> None:
        rows[xp.asarray(row_at)[bucket] + turn] = row_of[begins]
        mine, at = spans.numbered(xp, spans.lengths(xp, begins, nnz), nnz)
        slot = (xp.asarray(slot_at)[bucket] + (turn << power))[mine] + at
        columns[slot], positions[slot] = cols, xp.arange(nnz)

    return np.array(counts.tolist()), place
