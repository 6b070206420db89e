"""RGMS, the operator on a matrix of several relations: ``Y[i, :] = sum_r sum_j A_r[i, j] X[j, :] W_r``.

One layer of a relational graph network, or one sparse convolution, whose relations are the offsets of its kernel. Ye,
Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.4 (relational gather-matmul-scatter).

A problem of RGMS is no `Problem`: it has a number of relations and two widths, an operand of three dimensions, and no
implementation takes both kinds. `Op` therefore keeps its two members, over which searches and digests of spaces run.
What checks and times a plan takes `AnyProblem`: the functions of `spmark.impls.core.operators` know both kinds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from spmark.impls.core.enums import RelationalOp as RelationalOp  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.errors import MatrixError, ProblemError
from spmark.impls.core.operators import DenseRows, RandomOperand, Reference, random_operands, reference
from spmark.impls.core.problem import MAX_NNZ, Csr, DType, Problem, canonical_rows, checked_width, grouped, rounded

MAX_RELATIONS = 1 << 15


@dataclass(frozen=True, eq=False)
class RelationalCsr:
    """The matrices A_0 ... A_(R-1) of all relations, side by side in one canonical CSR.

    Row i of ``wide`` holds the edges of all relations that end in row i of the result, relation by relation, and so
    one index says relation and column of an edge. Whatever takes a CSR takes this matrix, too: the check that it is
    canonical, hashes, caches and statistics. Memory grows with rows and edges, not with their number for each relation.
    """

    wide: Csr
    """I x (R K): column ``r K + j`` is column j of A_r."""
    relations: int
    """R, from 1 to `MAX_RELATIONS`; a relation may be without edges, and then adds nothing."""

    @classmethod
    def checked(cls, wide: Csr | Any, relations: int, where: str = "matrix") -> RelationalCsr:
        """Check that the columns are those of so many relations.

        Parameters
        ----------
        wide : Csr or SciPy sparse matrix
            [A_0 | A_1 | ...], as `Csr.of` takes it.
        relations : int
            R.
        where : str
            Named in errors.

        Raises
        ------
        MatrixError
            There are no relations or too many, or R does not divide the number of columns.
        """
        matrix, relations = Csr.of(wide, where), _checked_relations(relations, where)
        if matrix.num_cols % relations:
            raise MatrixError(
                f"{where}: expected the columns of {relations:,} relations side by side, found {matrix.num_cols:,} "
                f"columns, which {relations:,} does not divide"
            )
        return cls(matrix, relations)

    @classmethod
    def of_edges(
        cls,
        shape: tuple[int, int],
        relations: int,
        edges: tuple[ArrayLike, ArrayLike, ArrayLike],
        values: ArrayLike | None = None,
        where: str = "matrix",
    ) -> RelationalCsr:
        """Sort edges into rows, and add up those of the same relation, row and column.

        Parameters
        ----------
        shape : tuple of int
            (I, K) of each relation's matrix.
        relations : int
            R.
        edges : three (n,) integers
            Relation, row and column of each edge, in any order.
        values : (n,) real, optional
            A's values; ones by default.
        where : str
            Named in errors.

        Raises
        ------
        MatrixError
            An edge's relation, row or column is out of range, or the numbers are beyond int32. O(n log n) time.
        """
        (num_rows, num_cols), relations = shape, _checked_relations(relations, where)
        if num_cols * relations > MAX_NNZ:
            raise MatrixError(
                f"{where}: expected columns times relations of at most 2^31 - 1 (indices are int32), "
                f"found {num_cols:,} columns and {relations:,} relations"
            )
        told = (("edge types", relations), ("rows", num_rows), ("columns", num_cols))
        found = [np.asarray(each) for each in edges]
        for (name, end), each in zip(told, found, strict=True):
            _check_ends(name, each, end, found[0].shape, where)
        relation, rows, cols = (each.astype(np.int64) for each in found)
        data = np.ones(rows.size) if values is None else np.asarray(values)
        if data.shape != rows.shape:
            raise MatrixError(f"{where}: expected a value for each of {rows.size:,} edges, found shape {data.shape}")
        columns = relation * num_cols + cols
        coo = sparse.coo_array((data, (rows, columns)), shape=(num_rows, relations * num_cols))
        return cls(Csr.of(canonical_rows(coo, where), where), relations)

    def transposed(self) -> RelationalCsr:
        """Give the matrices A_r^T, K x I; of a strided map that is the map of the transposed convolution."""
        relation, rows, cols = self.edges
        shape = (self.num_cols, self.num_rows)
        return RelationalCsr.of_edges(shape, self.relations, (relation, cols, rows), self.wide.values)

    @property
    def num_rows(self) -> int:
        """I, rows of Y."""
        return self.wide.num_rows

    @property
    def num_cols(self) -> int:
        """K, rows of X."""
        return self.wide.num_cols // self.relations

    @property
    def nnz(self) -> int:
        """Edges of all relations."""
        return self.wide.nnz

    @property
    def row_lengths(self) -> NDArray[np.int32]:
        """(I,) int32: edges of each row, of all relations."""
        return self.wide.row_lengths

    @property
    def longest_row(self) -> int:
        """Edges of the longest row, of all relations."""
        return self.wide.longest_row

    @cached_property
    def hash(self) -> str:
        """SHA-256 over relations and pattern. O(nnz)."""
        return hashlib.sha256(f"{self.relations} relations of {self.wide.hash}".encode()).hexdigest()

    @cached_property
    def edges(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Relation, row and column of each edge in the order of ``wide``, (nnz,) int32 each. O(nnz)."""
        relation, cols = np.divmod(self.wide.indices, np.int32(self.num_cols))
        return relation, self.wide.rows_of_entries(), cols

    @cached_property
    def by_relation(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Positions of edges in ``wide`` sorted by relation, then row, then column, and where each relation begins.

        (nnz,) and (R + 1,) int32. O(nnz + R).
        """
        return grouped(self.edges[0], self.relations)


def _checked_relations(relations: Any, where: str) -> int:
    whole = isinstance(relations, int | np.integer) and not isinstance(relations, bool)
    if not whole or not 1 <= relations <= MAX_RELATIONS:
        raise MatrixError(f"{where}: expected from 1 to {MAX_RELATIONS:,} relations, found {relations!r}")
    return int(relations)


def _check_ends(name: str, found: NDArray[Any], end: int, shape: tuple[int, ...], where: str) -> None:
    if found.ndim != 1 or found.shape != shape or found.dtype.kind not in "iu":
        raise MatrixError(f"{where}: expected {name} as {shape} integers, found {found.dtype} of shape {found.shape}")
    outside = np.flatnonzero((found < 0) | (found >= end))
    if outside.size:
        at = int(outside[0])
        raise MatrixError(f"{where}: expected {name} in [0, {end}), found {found[at]} at edge {at}")


@dataclass(frozen=True, eq=False, init=False)
class RelationalProblem:
    """RGMS on one matrix at two widths and one dtype.

    Parameters
    ----------
    matrix : RelationalCsr
    width_in, width_out : int
        Columns of X and of Y, at least 1.
    dtype : DType, str or NumPy dtype
        Of operands and result; sums are float32.

    Raises
    ------
    ProblemError
        An argument is illegal; says what was expected and what was found.
    MatrixError
        The matrix has values beyond the range of the dtype.
    """

    matrix: RelationalCsr
    width_in: int
    width_out: int
    dtype: DType
    op: RelationalOp = field(init=False)
    values: NDArray[Any] = field(init=False, repr=False)
    """(nnz,) the values of A as operands have them, of `DType.numpy`, in the order of ``matrix.wide``."""

    def __init__(
        self, matrix: RelationalCsr, width_in: int, width_out: int, dtype: DType | DTypeLike = DType.FLOAT32
    ) -> None:
        if not isinstance(matrix, RelationalCsr):
            raise ProblemError(
                f"expected a RelationalCsr, found {type(matrix).__qualname__}; use RelationalCsr.of_edges"
            )
        self.__dict__.update(matrix=matrix, width_in=checked_width(width_in), width_out=checked_width(width_out))
        kind, values = rounded(matrix.wide.values, dtype)
        self.__dict__.update(op=RelationalOp.RGMS, dtype=kind, values=values)

    @property
    def width(self) -> int:
        """Columns of the result, which are J of SpMM."""
        return self.width_out

    scaled: ClassVar[bool] = False
    """Only SDDMM may be scaled."""

    @property
    def terms(self) -> int:
        """Terms of the longest sum, and one more for the rounding by A's value."""
        return self.matrix.longest_row * self.width_in + 1

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of X (K, width_in) and W (R, width_in, width_out), row-major."""
        return (self.matrix.num_cols, self.width_in), (self.matrix.relations, self.width_in, self.width_out)

    @property
    def out_shape(self) -> tuple[int, int]:
        """Shape of Y, (I, width_out) row-major."""
        return self.matrix.num_rows, self.width_out

    def flops(self) -> int:
        """Give the fewest useful floating-point operations: multiply by W_r before the edges are summed, or after.

        Before, each used pair of relation and row of X is multiplied once and edges take 2 width_out; after, each used
        pair of relation and row of Y is, and edges take 2 width_in. To multiply for each edge takes more than the
        first.
        """
        matrix, product = self.matrix, self.width_in * self.width_out
        relation, rows, cols = matrix.edges
        before = _distinct(relation, cols, matrix.num_cols) * product + matrix.nnz * self.width_out
        after = _distinct(relation, rows, matrix.num_rows) * product + matrix.nnz * self.width_in
        return 2 * min(before, after)

    def operand_bytes(self) -> int:
        """Give the fewest bytes to read: A's values, the used rows of X, the weights of relations with edges."""
        relation, _, cols = self.matrix.edges
        dense = self.width_in * (np.unique(cols).size + np.unique(relation).size * self.width_out)
        return self.dtype.itemsize * (self.matrix.nnz + dense)

    def compulsory_bytes(self) -> int:
        """Give the bytes of touching everything once: operands as above, A's ``indptr`` and ``indices``, all of Y."""
        out = self.dtype.itemsize * self.matrix.num_rows * self.width_out
        return self.operand_bytes() + self.matrix.wide.pattern_bytes + out


AnyProblem = Problem | RelationalProblem
"""What plans are built, checked and timed for."""


@random_operands.register
def _relational_operands(problem: RelationalProblem, seed: int) -> tuple[RandomOperand, RandomOperand]:
    """Give the random X, and W as a matrix of R width_in rows, whose values fill an array of three dimensions too."""
    (num_cols, width_in), (relations, _, width_out) = problem.operand_shapes
    x = RandomOperand((num_cols, width_in), problem.dtype, seed, 1)
    return x, RandomOperand((relations * width_in, width_out), problem.dtype, seed, 2)


@reference.register
def _relational_reference(
    problem: RelationalProblem, operands: Sequence[DenseRows], rows: NDArray[np.int64] | None = None
) -> Reference:
    """Compute Y in float64 on ``rows`` (default: all of them).

    Parameters
    ----------
    problem : RelationalProblem
        The values of A count as the dtype rounds them.
    operands : sequence of DenseRows
        X (K, width_in) and W (R, width_in, width_out) as arrays, or both of `random_operands`.
    rows : (n,) int64, optional
        Rows of A, increasing.

    Returns
    -------
    Reference
        One relation after the other: rows of X are summed into the rows of Y first, then multiplied by W_r.
    """
    matrix, (x, w) = problem.matrix, operands
    rows = np.arange(matrix.num_rows, dtype=np.int64) if rows is None else rows
    indptr, entries = matrix.wide.entries_of(rows)
    into, relation = np.repeat(np.arange(rows.size), np.diff(indptr)), matrix.edges[0][entries]
    order, bounds = grouped(relation, matrix.relations)
    result, magnitude = np.zeros((2, rows.size, problem.width_out))
    for r in np.flatnonzero(np.diff(bounds)):
        mine = order[bounds[r] : bounds[r + 1]]
        used, cols = np.unique(matrix.edges[2][entries[mine]], return_inverse=True)
        touched, at = np.unique(into[mine], return_inverse=True)
        held = problem.values[entries[mine]], x[used, :], _weights_of(w, int(r), problem.width_in)
        values, gathered, weights = (problem.dtype.numbers(one).astype(np.float64) for one in held)
        for found, scale in ((result, np.asarray), (magnitude, np.abs)):
            summed = sparse.csr_array((scale(values), (at, cols)), (touched.size, used.size)) @ scale(gathered)
            found[touched] += summed @ scale(weights)
    return Reference(rows, entries, result, magnitude, problem.dtype)


def _weights_of(w: DenseRows, relation: int, width_in: int) -> NDArray[Any]:
    if isinstance(w, RandomOperand):
        return w[np.arange(relation * width_in, (relation + 1) * width_in), :]
    return w[relation]  # type: ignore[no-any-return]


def _distinct(relation: NDArray[np.int32], places: NDArray[np.int32], length: int) -> int:
    return np.unique(relation.astype(np.int64) * length + places).size
