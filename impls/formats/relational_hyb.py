"""The 3-D hyb of a matrix of several relations: rows of each relation in ELL buckets, cut into groups of equal work.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.4: rows of A_r with up to 1, 2, 4, 8 or 16 edges are padded to this width. A group holds as many rows of one
relation and width as fill its slots, so that a thread block needs one weight matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import numbered, offsets, openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.limits import MAX_STORED

WIDEST = 16
"""Width of the widest bucket; longer rows are folded over several of its rows."""
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

    name: ClassVar[str] = "relational_hyb"

    shape: tuple[int, int]
    """(I, K) of each relation's matrix."""
    relations: int
    slots: int
    """Elements of a group, padding included."""
    groups: NDArray[np.int32]
    """(g, 4): relation, width, number of the first ELL row, and slots in use; relation by relation, then by width."""
    rows: NDArray[np.int32]
    """(r,) row of A of each ELL row, or -1 where an ELL row only fills its group."""
    indices: NDArray[np.int32]
    """(g, slots) columns, the rows of X."""
    positions: NDArray[np.int32]
    """(g, slots) position of each element in the wide CSR of the matrix (`RelationalCsr.wide`)."""
    nnz: int

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.indices.size

    @property
    def padding(self) -> float:
        """Stored elements over edges, minus 1; 0 without edges."""
        return self.stored / self.nnz - 1 if self.nnz else 0.0

    @classmethod
    def of(cls, matrix: RelationalCsr, slots: int, widest: int = WIDEST) -> RelationalHyb:
        """Lay a matrix out. O(nnz log nnz) time.

        Parameters
        ----------
        matrix : RelationalCsr
        slots : int
            Elements of a group: a power of two, at least `WIDEST`.
        widest : int
            Width of the widest bucket: a power of two up to `WIDEST`. With 1 nothing but groups is padded.

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
        pieces = _pieces(matrix, widest)
        # Pieces of one relation and width stand together; each such bucket begins with a group of its own.
        bucket = pieces[0] * len(WIDTHS) + pieces[4]
        pieces = pieces[:, np.argsort(bucket, kind="stable")]
        used, counts = np.unique(bucket, return_counts=True)
        relation, width = used // len(WIDTHS), 1 << used % len(WIDTHS)
        groups_of = -(-counts * width // slots)
        if (stored := int(groups_of.sum()) * slots) > MAX_STORED:
            raise BuildError(
                f"3-D hyb with groups of {slots} slots: expected at most {MAX_STORED:,} stored elements, found "
                f"{stored:,} for {matrix.nnz:,} edges"
            )
        of_bucket, number = numbered(groups_of)
        in_use = np.minimum(slots, (counts * width)[of_bucket] - number * slots)
        ell_rows = slots // width[of_bucket]
        groups = np.stack([relation[of_bucket], width[of_bucket], offsets(ell_rows)[:-1], in_use], axis=1)

        mine, at = numbered(counts)  # bucket of each piece, and its number therein
        first_group = offsets(groups_of)[:-1]
        rows = np.full(int(ell_rows.sum()), -1, np.int32)
        rows[groups[first_group[mine], 2] + at] = pieces[1]
        piece, slot = numbered(pieces[3])
        place = first_group[mine][piece] * slots + at[piece] * width[mine][piece] + slot
        positions, indices = np.full((2, groups.shape[0], slots), -1, np.int32)
        order, _ = matrix.by_relation
        positions.reshape(-1)[place] = edges = order[pieces[2][piece] + slot]
        indices.reshape(-1)[place] = matrix.edges[2][edges]
        shape = matrix.num_rows, matrix.num_cols
        return cls(shape, matrix.relations, slots, groups.astype(np.int32), rows, indices, positions, matrix.nnz)

    def to_relational(self, values: NDArray[np.float32]) -> RelationalCsr:
        """Give the matrix back, with ``values`` in the order of its wide CSR."""
        width = self.groups[:, 1, None]
        row = self.rows[self.groups[:, 2, None] + np.arange(self.slots) // width]
        real = self.positions >= 0
        relation = np.broadcast_to(self.groups[:, :1], real.shape)
        edges = relation[real], row[real], self.indices[real]
        return RelationalCsr.of_edges(self.shape, self.relations, edges, values[self.positions[real]])


def _pieces(matrix: RelationalCsr, widest: int) -> NDArray[np.int64]:
    """Cut the rows of each relation into pieces of up to ``widest`` edges.

    Returns
    -------
    (5, n) int64
        Relation, row, first edge in `RelationalCsr.by_relation`, edges, and binary logarithm of the width.
    """
    order, _ = matrix.by_relation
    relation, rows = (each[order] for each in matrix.edges[:2])
    first = np.flatnonzero(openings(rows) | openings(relation))
    lengths = np.diff(first, append=order.size)
    row, fold = numbered(-(-lengths // widest))
    edges = np.minimum(widest, lengths[row] - fold * widest)
    starts = first[row]
    width = np.ceil(np.log2(edges)).astype(np.int64)
    return np.stack([relation[starts], rows[starts], starts + fold * widest, edges, width]).astype(np.int64)
