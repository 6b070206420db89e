"""What is computed: the operator, the canonical CSR matrix A (I x K), the dense width J and the dtype.

SpMM is ``C[i, j] = sum_k A[i, k] B[k, j]``; SDDMM is ``D[i, k] = sum_j X[i, j] Y[k, j]`` at the non-zeros of A, in
A's CSR order, and ``scaled`` SDDMM multiplies by ``A[i, k]``. I, K and J mean this everywhere.

Also here: the way from a sparse matrix of SciPy to a canonical CSR, and arrays that are cut into spans as a CSR's
arrays are cut into rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from spmark.impls.core.enums import DType as DType  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.enums import Op as Op  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.errors import MatrixError, ProblemError, none_of

MAX_NNZ = 2**31 - 1
_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class Csr:
    """Canonical host CSR: in every row the columns increase strictly, so nothing is stored twice.

    The constructor trusts its arguments; data from outside enter through `Csr.checked`.
    """

    shape: tuple[int, int]
    """(I, K), both at least 1."""
    indptr: NDArray[np.int32]
    """(I + 1,) int32; row i is at ``indptr[i]:indptr[i + 1]``."""
    indices: NDArray[np.int32]
    """(nnz,) int32 columns."""
    values: NDArray[np.float32]
    """(nnz,) float32."""

    @classmethod
    def checked(
        cls, shape: tuple[int, int], indptr: ArrayLike, indices: ArrayLike, values: ArrayLike, where: str = "matrix"
    ) -> Csr:
        """Check everything a canonical CSR promises, then build one.

        Parameters
        ----------
        shape : tuple of int
            (I, K).
        indptr, indices, values : array_like
            (I + 1,), (nnz,), (nnz,); any integer dtype, any real dtype.
        where : str
            Named in errors: a file, a matrix id.

        Raises
        ------
        MatrixError
            Says what was expected, what was found and at which row or position. O(nnz) time, O(1) further memory.
        """
        try:
            num_rows, num_cols = map(index, shape)
            indptr, indices, values = np.asarray(indptr), np.asarray(indices), np.asarray(values)
        except (TypeError, ValueError) as error:
            raise MatrixError(f"{where}: expected a shape of two integers and three arrays, found: {error}") from error
        if num_rows < 1 or num_cols < 1:
            raise MatrixError(f"{where}: expected at least one row and one column, found shape {num_rows} x {num_cols}")
        nnz = indices.shape[0] if indices.ndim == 1 else -1
        if max(num_rows, num_cols, nnz) > MAX_NNZ:
            raise MatrixError(
                f"{where}: expected rows, columns and non-zeros of at most 2^31 - 1 (indices are int32), "
                f"found {num_rows} x {num_cols} with {nnz:,} non-zeros"
            )
        facts = ("indptr", indptr, num_rows + 1), ("indices", indices, nnz), ("values", values, nnz)
        for name, array, length in facts:
            if array.shape != (length,):
                raise MatrixError(f"{where}: expected {name} of shape ({length},), found {array.shape}")
        for name, array, _ in facts:
            kind, legal = ("real", "fiub") if array is values else ("integer", "iu")
            if array.dtype.kind not in legal:
                raise MatrixError(f"{where}: expected {kind} {name}, found {array.dtype}")
        _check_pattern(indptr, indices, num_cols, where)
        with np.errstate(over="ignore"):
            converted = np.ascontiguousarray(values, np.float32)
        check_finite(converted, values, "float32", where)
        return cls(
            (num_rows, num_cols),
            np.ascontiguousarray(indptr, np.int32),
            np.ascontiguousarray(indices, np.int32),
            converted,
        )

    @classmethod
    def of(cls, matrix: Any, where: str = "matrix") -> Csr:
        """Give the canonical CSR of a sparse matrix, which is not changed.

        Parameters
        ----------
        matrix : Csr or SciPy sparse matrix or array
            Of any of SciPy's formats; entries of one place are added up, integers in float64. A `Csr` comes back as it
            is.
        where : str
            Named in errors.

        Raises
        ------
        MatrixError
            The argument is something else, or an illegal matrix. O(nnz log nnz) time where rows are not sorted.
        """
        if isinstance(matrix, Csr):
            return matrix
        check_of_two(matrix, where, "a Csr or a SciPy sparse matrix of two dimensions")
        rows = canonical_rows(matrix, where)
        return cls.checked(rows.shape, rows.indptr, rows.indices, rows.data, where)

    @property
    def num_rows(self) -> int:
        """I."""
        return self.shape[0]

    @property
    def num_cols(self) -> int:
        """K."""
        return self.shape[1]

    @property
    def nnz(self) -> int:
        """Stored non-zeros."""
        return int(self.indices.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.pattern_bytes + self.values.nbytes

    @property
    def pattern_bytes(self) -> int:
        """Bytes of ``indptr`` and ``indices``."""
        return self.indptr.nbytes + self.indices.nbytes

    @cached_property
    def row_lengths(self) -> NDArray[np.int32]:
        """(I,) int32: non-zeros of each row."""
        return np.diff(self.indptr)

    @cached_property
    def longest_row(self) -> int:
        """Non-zeros of the longest row."""
        return int(self.row_lengths.max(initial=0))

    @cached_property
    def filled_rows(self) -> int:
        """Rows with non-zeros."""
        return int(np.count_nonzero(self.row_lengths))

    @cached_property
    def used_cols(self) -> int:
        """Columns with at least one non-zero: the rows of B (or Y) that must be read. O(nnz)."""
        seen = np.zeros(self.num_cols, np.bool_)
        seen[self.indices] = True
        return int(np.count_nonzero(seen))

    @cached_property
    def hash(self) -> str:
        """SHA-256 over shape, indptr and indices: the pattern, not the values. O(nnz)."""
        digest = hashlib.sha256(f"{self.num_rows}x{self.num_cols}".encode())
        digest.update(self.indptr.data)
        digest.update(self.indices.data)
        return digest.hexdigest()

    def rows_of_entries(self) -> NDArray[np.int32]:
        """Give the row of every non-zero, (nnz,) int32. O(nnz) memory."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), self.row_lengths)

    def entries_of(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the entries of ``rows``, in that order: their indptr (n + 1,), and the position of each, both int64."""
        lengths = self.row_lengths[rows].astype(np.int64)
        indptr = offsets(lengths)
        return indptr, np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])

    def of_rows(self, rows: NDArray[Any]) -> tuple[Csr, NDArray[np.int64]]:
        """Give the matrix of ``rows``, in that order, and the position in this matrix of each of its entries."""
        indptr, at = self.entries_of(rows)
        return Csr((rows.size, self.num_cols), indptr.astype(np.int32), self.indices[at], self.values[at]), at

    def transposed(self) -> Csr:
        """Give the transpose as a canonical CSR. O(nnz)."""
        from scipy import sparse

        flipped = sparse.csr_array((self.values, self.indices, self.indptr), shape=self.shape).tocsc()
        return Csr(
            (self.num_cols, self.num_rows),
            flipped.indptr.astype(np.int32, copy=False),
            flipped.indices.astype(np.int32, copy=False),
            flipped.data.astype(np.float32, copy=False),
        )


def _check_pattern(indptr: NDArray[Any], indices: NDArray[Any], num_cols: int, where: str) -> None:
    if indptr[0] != 0 or indptr[-1] != indices.size:
        raise MatrixError(f"{where}: expected indptr from 0 to nnz = {indices.size}, found {indptr[0]} to {indptr[-1]}")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        row = int(falls[0])
        raise MatrixError(
            f"{where}: expected indptr never to fall, found {indptr[row]} then {indptr[row + 1]} at row {row}"
        )
    for start in range(0, indices.shape[0], _CHUNK):
        part = indices[start : start + _CHUNK + 1]
        low, high = int(part.min()), int(part.max())
        if low < 0 or high >= num_cols:
            at = start + int(np.flatnonzero((part < 0) | (part >= num_cols))[0])
            raise MatrixError(
                f"{where}: expected columns in [0, {num_cols}), found {indices[at]} "
                f"in row {np.searchsorted(indptr, at, side='right') - 1} (position {at})"
            )
        # A pair that does not increase is legal only where a row ends between its two entries.
        falls = start + 1 + np.flatnonzero(part[1:] <= part[:-1])
        rows = np.searchsorted(indptr, falls, side="right") - 1
        wrong = np.flatnonzero(indptr[rows] != falls)
        if wrong.size:
            at, row = int(falls[wrong[0]]), int(rows[wrong[0]])
            kind = "a duplicate" if indices[at] == indices[at - 1] else "unsorted columns"
            raise MatrixError(
                f"{where}: expected strictly increasing columns in every row, found {kind} in row {row}: "
                f"{indices[at - 1]} then {indices[at]} (position {at})"
            )


def check_finite(values: NDArray[Any], given: NDArray[Any], dtype: str, where: str = "matrix") -> None:
    """Refuse values of which one is not finite.

    Parameters
    ----------
    values : (nnz,) array
        In ``dtype``.
    given : (nnz,) array
        The same values before they were converted to it.
    dtype : str
        Named in errors.
    where : str
        Named in errors.

    Raises
    ------
    MatrixError
        A value is not finite as it was given, or is beyond the range of the type; says which and at which position.
    """
    for start in range(0, values.shape[0], _CHUNK):
        bad = np.flatnonzero(~np.isfinite(values[start : start + _CHUNK]))
        if bad.size:
            at = start + int(bad[0])
            found = f"{where}: expected finite values, found {given[at]} at position {at}"
            beyond = f", which is beyond the range of {dtype}: scale the values, or choose a wider type"
            raise MatrixError(found + beyond if np.isfinite(given[at]) else found)


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    """One operator on one matrix at one width and dtype.

    Parameters
    ----------
    op : Op or str
    matrix : Csr or SciPy sparse matrix
        `Csr.of` converts a SciPy matrix.
    width : int
        J, at least 1.
    dtype : DType, str or NumPy dtype
    scaled : bool
        Only with SDDMM.

    Raises
    ------
    ProblemError
        An argument is illegal; says what was expected and what was found.
    MatrixError
        The matrix is illegal, or has values beyond the range of the dtype.
    """

    op: Op
    matrix: Csr
    width: int
    """J, the dense width."""
    dtype: DType
    scaled: bool
    """SDDMM only: multiply by A[i, k]."""
    values: NDArray[Any] = field(init=False, repr=False)
    """(nnz,) the values of A as operands have them, of `DType.numpy`."""

    def __init__(
        self,
        op: Op | str,
        matrix: Csr | Any,
        width: int,
        dtype: DType | DTypeLike = DType.FLOAT32,
        scaled: bool = False,
    ) -> None:
        width = checked_width(width)
        if not isinstance(op, str) or op not in tuple(Op):
            raise ProblemError(none_of("an operator", op, Op))
        if scaled and op != Op.SDDMM:
            raise ProblemError(f"expected scaled only with sddmm, found scaled {op}")
        a = Csr.of(matrix)
        kind, values = rounded(a.values, dtype)
        self.__dict__.update(op=Op(op), matrix=a, width=width, dtype=kind, scaled=bool(scaled), values=values)

    @property
    def factors(self) -> NDArray[Any]:
        """What SDDMM's sums are multiplied by: `values` where the problem is scaled, else an empty array."""
        return self.values if self.scaled else self.values[:0]

    @property
    def terms(self) -> int:
        """Terms of the longest sum, at least 1, and one more for the rounding by A's value where it is scaled."""
        longest = self.width if self.op is Op.SDDMM else self.matrix.longest_row
        return max(longest, 1) + self.scaled

    @property
    def operand_shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the dense operands: B (K, J) for SpMM; X (I, J) and Y (K, J) for SDDMM. Row-major."""
        num_rows, num_cols = self.matrix.shape
        if self.op is Op.SPMM:
            return ((num_cols, self.width),)
        return ((num_rows, self.width), (num_cols, self.width))

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result: (I, J) row-major for SpMM, (nnz,) for SDDMM."""
        return (self.matrix.num_rows, self.width) if self.op is Op.SPMM else (self.matrix.nnz,)

    def flops(self) -> int:
        """Give 2 nnz J, the useful floating-point operations of both operators."""
        return 2 * self.matrix.nnz * self.width

    def operand_bytes(self) -> int:
        """Give the fewest bytes that any implementation must read.

        These are the values of A that take part and the used rows of operands. The pattern is left out, since
        a format or generated code may hold it in other ways.
        """
        used_rows = self.matrix.filled_rows if self.op is Op.SDDMM else 0
        takes_values = self.op is Op.SPMM or self.scaled
        return self.dtype.itemsize * ((self.matrix.used_cols + used_rows) * self.width + takes_values * self.matrix.nnz)

    def compulsory_bytes(self) -> int:
        """Give the bytes of touching everything once: A in CSR, the used rows of operands, the whole result."""
        return self.operand_bytes() + self.matrix.pattern_bytes + self.dtype.itemsize * prod(self.out_shape)


class PlainProblem(Problem):
    """A problem of float64, which is no `DType`: records and sweeps have none, and a person's products may.

    Parameters
    ----------
    op : Op
    pattern : Csr
        Its values count for nothing.
    values : (nnz,) float64
        Values of A in CSR order.
    width : int
        J.
    scaled : bool
        SDDMM only: multiply by A[i, k].
    """

    dtype: Any
    """The NumPy dtype of operands, result and values."""

    def __init__(self, op: Op, pattern: Csr, values: NDArray[Any], width: int, scaled: bool = False) -> None:
        super().__init__(op, pattern, width, scaled=scaled)
        self.__dict__.update(values=values, dtype=values.dtype)

    @property
    def factors(self) -> NDArray[Any]:
        """The values that a kernel reads: an empty array where SDDMM is not scaled."""
        return self.values if self.op is Op.SPMM else super().factors


def checked_width(given: Any) -> int:
    """Check a dense width J.

    Raises
    ------
    ProblemError
        It is no integer of at least 1 and below 2^31.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise ProblemError(f"expected a width J of at least 1, found {given!r}")
    if given >= 1 << 31:
        raise ProblemError(f"expected a width J below 2^31, found {given!r}")
    return int(given)


def rounded(values: NDArray[Any], dtype: DType | DTypeLike) -> tuple[DType, NDArray[Any]]:
    """Give a type of operands, and values as its arrays hold them.

    Raises
    ------
    ProblemError
        The type is none of `DType`.
    MatrixError
        A value is beyond the range of the type.
    """
    name = dtype_name(dtype)
    if name not in tuple(DType):
        raise ProblemError(none_of("a dtype", dtype, DType))
    kind = DType(name)
    with np.errstate(over="ignore"):
        stored = kind.stored(values)
    if kind.narrow:
        check_finite(kind.numbers(stored), values, name)
    return kind, stored


def dtype_name(given: Any) -> str:
    """Give the name that NumPy has for a dtype: ``float32``, also for PyTorch's; an unknown thing gives its text."""
    text = str(given).removeprefix("torch.")
    try:
        return str(np.dtype(given)) if given is not None else "None"
    except (TypeError, ValueError, SyntaxError):  # NumPy reads some texts as the fields of a record
        return text


_OF_ARRAYS = ("coo", "csr", "csc", "bsr")
"""Formats of SciPy that are no more than arrays, which may hold duplicates."""


def check_of_two(given: Any, where: str, expected: str, remedy: str = "") -> None:
    """Refuse what is no sparse matrix of SciPy of two dimensions; the message says what was ``expected``.

    Raises
    ------
    MatrixError
        The argument is something else.
    """
    from scipy import sparse

    if not sparse.issparse(given) or len(getattr(given, "shape", ())) != 2:
        shape = f" of shape {tuple(given.shape)}" if hasattr(given, "shape") else ""
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        raise MatrixError(f"{where}: expected {expected}, found a {kind}{shape}{remedy}")


def canonical_rows(matrix: Any, where: str = "matrix", wide: bool = False) -> Any:
    """Give a canonical CSR of a sparse matrix, which may share memory with it.

    SciPy adds up entries of one place in the type of the values, in which sums of small integers overflow. Integers,
    truth values and halves are therefore added up in float64, which is the result's type.

    Parameters
    ----------
    matrix : SciPy sparse matrix or array
        Of two dimensions and any of SciPy's formats. It is not changed.
    where : str
        Named in errors.
    wide : bool
        Whether entries of float32 are added up in float64, too.

    Returns
    -------
    csr_array
        Its columns increase in every row.

    Raises
    ------
    MatrixError
        The arrays of the matrix are illegal: SciPy's loops trust them, and would end the process. O(nnz log nnz) time
        where rows are not sorted, else O(nnz).
    """
    from scipy import sparse

    try:
        given = matrix if matrix.format in _OF_ARRAYS else matrix.tocsr()
        data, of_coo = given.data, given.format == "coo"
        places = (given.row, given.col) if of_coo else (given.indices, given.indptr)
        for array in places:
            if array.dtype.kind not in "iu":
                raise TypeError(f"indices of {array.dtype}")
        if wide or data.dtype.kind in "iub" or data.dtype.itemsize < 4:
            data = data.astype(np.result_type(data.dtype, np.float64), copy=False)
        # A new matrix has no flags of what the arrays once held; the constructor of a COO checks its places.
        parts = (data, places) if of_coo else (data, *places)
        given = getattr(sparse, f"{given.format}_array")(parts, shape=given.shape)
        if not of_coo:
            given.check_format(full_check=True)
        if given.format == "bsr" and any(np.remainder(given.shape, given.blocksize)):
            raise ValueError(f"blocks of shape {given.blocksize}, whose sides do not divide {given.shape}")
        rows = given.tocsr()
    except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise MatrixError(f"{where}: expected legal arrays of a {matrix.format} matrix, found: {error}") from error
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def offsets(lengths: NDArray[Any], dtype: DTypeLike = np.int64) -> NDArray[Any]:
    """Give where each of n spans begins and the last one ends, (n + 1,), from their lengths (n,)."""
    bounds = np.zeros(lengths.size + 1, dtype)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def numbered(lengths: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the span of each element of all spans, and its number within that span, both (sum of lengths,)."""
    span = np.repeat(np.arange(lengths.size), lengths)
    return span, np.arange(span.size) - np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, lengths)


def cut(begins: NDArray[Any], lengths: NDArray[Any], most: int) -> NDArray[np.int32]:
    """Cut spans, which begin at ``begins`` (n,), into pieces of at most ``most`` elements.

    Returns
    -------
    (pieces, 4) int32
        Span, first element, elements, 0; span by span.
    """
    span, number = numbered(-(-lengths // most))
    before = number * most
    counts = np.minimum(most, lengths[span] - before)
    return np.stack([span, begins[span] + before, counts, np.zeros_like(span)], axis=1).astype(np.int32)


def openings(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark each of (n,) values, of NumPy or CuPy, that differs from the one before it; the first always does."""
    marks = np.ones_like(values, np.bool_)
    marks[1:] = values[1:] != values[:-1]
    return marks


def grouped(spans: NDArray[np.int32], count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sort elements by their span, (n,) int32 out of ``count``; those of a span keep their order. O(n + count).

    Returns
    -------
    order : (n,) int32
        The elements, span by span.
    bounds : (count + 1,) int32
        Where each span begins in ``order``, and the last one ends.
    """
    from scipy import sparse

    at = np.arange(spans.size + 1, dtype=np.int32)
    sorted_ = sparse.csr_array((np.empty(spans.size, np.bool_), spans, at), shape=(spans.size, count)).tocsc()
    return sorted_.indices, sorted_.indptr
