"""Format decomposition: rules that store a matrix as parts in several formats, whose sum is the matrix.

After the composable formats of Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse
Compilation in Deep Learning", ASPLOS 2023, section 3.2.1 and appendix A: a rule here is their ``FormatRewriteRule``,
and `decompose` their ``decompose_format``, done once for a matrix that does not change. Rules take turns: each takes
some of the non-zeros that earlier rules have left, so no non-zero is stored twice. `spmark.impls.formats.rules` has the
rules; a further rule is a class with two methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Format
from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the non-zeros of a matrix in a format of their own."""

    held: Format
    """The storage of the part, of the whole matrix's shape."""
    kernel: str
    """Name of the kernel's body that computes the part: ``<kernel>.cuh`` among the kernels."""
    rows: NDArray[np.int32]
    """(n,) row of A of every piece that is summed by itself; a row that the format folds stands here more than once."""


class Rule(Protocol):
    """A choice of non-zeros, and the way to store them as a part."""

    def select(self, rest: Csr) -> NDArray[np.bool_]:
        """Choose among the non-zeros that are left.

        Parameters
        ----------
        rest : Csr
            The non-zeros that are left, in a matrix of the whole shape.

        Returns
        -------
        (rest.nnz,) bool
            Which non-zeros the rule takes, in CSR order.
        """
        ...

    def store(self, chosen: Csr, elsewhere: NDArray[np.bool_]) -> Part:
        """Lay out the non-zeros that the rule has chosen.

        Parameters
        ----------
        chosen : Csr
            Of the whole matrix's shape, with at least one non-zero.
        elsewhere : (I,) bool
            Rows with non-zeros in other parts as well, so that the sums of all parts must be added up.
        """
        ...


def decompose(matrix: Csr, rules: Iterable[Rule]) -> list[Part]:
    """Store a matrix as parts.

    Parameters
    ----------
    matrix : Csr
    rules : iterable of Rule
        In the order in which they choose.

    Returns
    -------
    list of Part
        In the same order, without rules that took nothing. Every non-zero of ``matrix`` is in exactly one part. O(nnz)
        for each rule, and the time of its format.

    Raises
    ------
    BuildError
        Non-zeros are left after the last rule, or a format would hold too much.
    """
    chosen: list[tuple[Rule, Csr]] = []
    rest, parts_of_row = matrix, np.zeros(matrix.num_rows, np.int32)
    names = []
    for rule in rules:
        names.append(str(rule))
        taken, rest = split(rest, rule.select(rest))
        if taken.nnz:
            chosen.append((rule, taken))
            parts_of_row += taken.row_lengths > 0
    if rest.nnz:
        row = int(np.flatnonzero(rest.row_lengths)[0])
        raise BuildError(
            f"expected the rules to take all of {matrix.nnz:,} non-zeros, found {rest.nnz:,} left, the first in row "
            f"{row}, after {', '.join(names) or 'no rule'}: end with one that takes everything, such as Remainder()"
        )
    elsewhere = parts_of_row > 1
    return [rule.store(taken, elsewhere) for rule, taken in chosen]


def split(matrix: Csr, taken: NDArray[np.bool_]) -> tuple[Csr, Csr]:
    """Split a matrix into the non-zeros that are taken and the others, both in its shape. O(nnz)."""
    if not taken.any():
        return _kept(matrix, taken), matrix
    if taken.all():
        return matrix, _kept(matrix, ~taken)
    return _kept(matrix, taken), _kept(matrix, ~taken)


def _kept(matrix: Csr, mask: NDArray[np.bool_]) -> Csr:
    before = offsets(mask, np.int32)
    return Csr(matrix.shape, before[matrix.indptr], matrix.indices[mask], matrix.values[mask])


@dataclass(frozen=True, eq=False)
class RowUse:
    """Which rows of C must be cleared before the kernels run, and which are added into."""

    num_rows: int
    shared: NDArray[np.int32]
    """(s,) rows that are the sum of several pieces, rising: cleared, then added into atomically."""
    empty: NDArray[np.int32]
    """(e,) rows without a piece, rising: cleared."""

    def targets(self, rows: NDArray[np.int32], numbered: bool) -> NDArray[np.int32]:
        """Say where each piece's sums go.

        Parameters
        ----------
        rows : (n,) int32
            Row of A of each piece.
        numbered : bool
            Shared rows are added up in a workspace with one row for each of `shared`, as float16 needs, instead of in
            C.

        Returns
        -------
        (n,) int32
            r where row r of C is written whole; -1 - r where the sums are added into row r of C, or of the workspace.
        """
        into = np.arange(self.num_rows, dtype=np.int32)
        number = np.arange(self.shared.size, dtype=np.int32) if numbered else self.shared
        into[self.shared] = -1 - number
        targets: NDArray[np.int32] = into[rows]
        return targets


def row_use(num_rows: int, pieces: Iterable[NDArray[np.int32]]) -> RowUse:
    """Find the rows that are shared between pieces, of one part or several, and those that are empty.

    Parameters
    ----------
    num_rows : int
    pieces : iterable of (n,) int32
        `Part.rows` of every part.

    Returns
    -------
    RowUse
        O(I + pieces).
    """
    uses = np.zeros(num_rows, np.int64)
    for rows in pieces:
        uses += np.bincount(rows, minlength=num_rows)
    shared, empty = (np.flatnonzero(which).astype(np.int32) for which in (uses > 1, uses == 0))
    return RowUse(num_rows, shared, empty)
