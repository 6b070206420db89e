"""The truth about the operators on the host: operands and the float64 reference.

Functions whose problem may be Any take each kind of problem. What is said here is of a `Problem`, of SpMM or SDDMM;
`spmark.impls.core.relational` registers `random_operands` and `reference` for its problems.

Operands are a function of (seed, stream, index) alone, evaluated by the same integer arithmetic on the host and on a
GPU: the device holds the whole operand while the reference makes only the rows that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType, Op, Problem

SAMPLED_ROWS = 4096
_ALL_ROWS_WORK, _MOST_WORK = 1 << 27, 1 << 31
"""nnz J up to which all rows are checked, and non-zeros times J of the rows that are checked at most: a slow core takes
3 and 50 s."""
_CHUNK = 1 << 22
_HOST_CHUNK, _DEVICE_CHUNK = 1 << 15, 1 << 24
"""Elements drawn at once: as many as a core's cache holds, and as many as fill a GPU."""


def random_values(index: Any, seed: int, stream: int, xp: Any = np) -> Any:
    """Give the random values at ``index``: a sign times 0.5 + k 2^-23, k uniform in [0, 2^22).

    The magnitudes lie in [0.5, 1), so that no entry is near zero and a missing or doubled term always shows.

    Parameters
    ----------
    index : array of uint64
        Positions, any shape (NumPy or CuPy).
    seed, stream : int
        The sweep's seed and the number of the operand.
    xp : module
        NumPy, or CuPy for an index on the device: the same bits come out.

    Returns
    -------
    array of float32
        Same shape as ``index``. SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014) over a keyed counter.
    """
    bits = index * xp.uint64(0x9E3779B97F4A7C15)
    bits += xp.uint64(_key(seed, stream))
    bits ^= bits >> xp.uint64(30)
    bits *= xp.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> xp.uint64(27)
    bits *= xp.uint64(0x94D049BB133111EB)
    bits ^= bits >> xp.uint64(31)
    # The float's bits at once: sign, the exponent of [0.5, 1), and k in the upper 22 bits of the mantissa.
    sign = bits << xp.uint64(31)
    bits >>= xp.uint64(41)
    bits &= xp.uint64(0x7FFFFE)
    bits |= xp.uint64(0x3F000000)
    bits |= sign
    return bits.astype(xp.uint32).view(xp.float32)


def _key(seed: int, stream: int) -> int:
    key = ((seed * 0x9E3779B97F4A7C15) ^ ((stream + 1) * 0xD1B54A32D192ED03)) + 0x9E3779B97F4A7C15
    return key & (2**64 - 1)


@dataclass(frozen=True)
class RandomOperand:
    """A dense operand that exists only where it is read.

    Indexing with ``[rows, start:stop]`` gives host values; `fill` writes the whole operand into an array.
    """

    shape: tuple[int, int]
    dtype: DType
    seed: int
    stream: int

    def __getitem__(self, key: tuple[NDArray[np.integer[Any]], slice], /) -> NDArray[Any]:
        """Give the rows asked for, in the operand's dtype."""
        rows, cols = key
        start, stop, _ = cols.indices(self.shape[1])
        columns = np.arange(start, stop, dtype=np.uint64)
        values = np.empty((rows.size, columns.size), self.dtype.numpy)
        step = max(1, _HOST_CHUNK // max(columns.size, 1))
        for first in range(0, rows.size, step):
            part = rows[first : first + step].astype(np.uint64)[:, None] * np.uint64(self.shape[1]) + columns
            values[first : first + step] = self.dtype.stored(random_values(part, self.seed, self.stream))
        return values

    @property
    def key(self) -> int:
        """What `random_values` adds to the multiples of its constant, of 64 bits."""
        return _key(self.seed, self.stream)

    def fill(self, out: NDArray[Any]) -> None:
        """Write every value into ``out``, contiguous (rows, J). O(rows J)."""
        for part, values in self._beside(out.reshape(-1), np):
            part[:] = values

    def equals(self, other: Any, xp: Any = np) -> bool:
        """Tell whether ``other`` still holds exactly these values. O(rows J)."""
        same = xp.asarray(True)
        for part, values in self._beside(other.reshape(-1), xp):
            same &= xp.all(part == values)
        return bool(same)

    def _beside(self, flat: Any, xp: Any) -> Iterator[tuple[Any, Any]]:
        """Give one part of a flat array after the other, and the operand's values there."""
        chunk = _HOST_CHUNK if xp is np else _DEVICE_CHUNK
        for start in range(0, flat.size, chunk):
            index = xp.arange(start, min(start + chunk, flat.size), dtype=xp.uint64)
            values = self.dtype.stored(random_values(index, self.seed, self.stream, xp))
            yield flat[start : start + chunk], values


Places = NDArray[np.int64]
Wide = NDArray[np.float64]
DenseRows = NDArray[Any] | RandomOperand
"""A dense row-major operand (rows, J) that is read by rows and a range of columns."""


@singledispatch
def random_operands(problem: Any, seed: int) -> tuple[RandomOperand, ...]:
    """Give the problem's dense operands: B, or X and Y."""
    return tuple(RandomOperand(s, problem.dtype, seed, stream) for stream, s in enumerate(problem.operand_shapes, 1))


def sampled_rows(problem: Any, seed: int = 0) -> NDArray[np.int64]:
    """Choose the rows that are checked: all of them, or some including the longest where checking all takes long.

    Returns
    -------
    (n,) int64, increasing. All rows where nnz J is at most 2^27, or where they are at most 4,096 and nnz J is at most
    2^31. Else the longest row and rows drawn by ``seed``: 4,096 in all, or fewer, whose non-zeros times J are at most
    2^31. The longest row is checked whatever its length.
    """
    matrix = problem.matrix
    work = matrix.nnz * problem.width
    if work <= _ALL_ROWS_WORK or (matrix.num_rows <= SAMPLED_ROWS and work <= _MOST_WORK):
        return np.arange(matrix.num_rows, dtype=np.int64)
    lengths = matrix.row_lengths
    longest = int(np.argmax(lengths))
    drawn = np.random.default_rng(seed).choice(matrix.num_rows, min(SAMPLED_ROWS - 1, matrix.num_rows), replace=False)
    covered = lengths[longest] + np.cumsum(lengths[drawn], dtype=np.int64)
    return np.union1d(drawn[covered * problem.width <= _MOST_WORK], [longest]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Reference:
    """The float64 result on some rows, and the magnitudes that its errors are relative to."""

    rows: NDArray[np.int64]
    """(n,) rows of A that are covered."""
    entries: NDArray[np.int64]
    """(m,) positions of those rows' non-zeros in A's CSR order."""
    result: NDArray[np.float64]
    """SpMM: (n, J). SDDMM: (m,)."""
    magnitude: NDArray[np.float64]
    """Same shape: the sum of |a| |b| over the terms, the scale of the rounding error."""
    dtype: DType

    def select(self, problem: Any, out: Any, order: NDArray[np.int32] | None = None) -> Any:
        """Give the part of ``out`` (NumPy or CuPy) that the reference covers.

        Parameters
        ----------
        problem : Problem
        out : array
            Of `Problem.out_shape`.
        order : (nnz,) int32, optional
            Position in A's CSR order of each element of ``out`` (`Plan.order`); None where ``out`` is in CSR order.

        Raises
        ------
        BuildError
            As `places`.
        """
        places = self.places(problem, order)
        return out if places is None else out[places]

    def places(self, problem: Any, order: NDArray[np.int32] | None = None) -> NDArray[np.int64] | None:
        """Give where a result has the part that the reference covers, (n,) or (m,); None where that is all of it.

        Parameters
        ----------
        problem, order
            As in `select`.

        Raises
        ------
        BuildError
            ``order`` does not name every non-zero once, or the operator is SpMM, whose result has no such order.
        """
        if order is not None:
            return _csr_places(problem, order)[self.entries]
        if problem.op is Op.SDDMM:
            return None if self.entries.size == problem.matrix.nnz else self.entries
        return None if self.rows.size == problem.matrix.num_rows else self.rows

    def max_error(self, selected: NDArray[Any]) -> float:
        """Give the largest |out - reference| / magnitude; infinite where out is not finite or misses an exact zero."""
        if self.result.size == 0:
            return 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            difference = np.abs(self.dtype.numbers(selected) - self.result)
            if self.dtype.narrow:
                # Rounding the result once is no error: half a unit in its last place, or of a subnormal.
                rounding = np.maximum(2.0**-self.dtype.digits * np.abs(self.result), self.dtype.least / 2)
                difference = np.maximum(difference - rounding, 0.0, where=~np.isnan(difference), out=difference)
            error = np.where(difference == 0, 0.0, difference / self.magnitude)
        return float(np.max(np.where(np.isnan(error), np.inf, error)))


def _csr_places(problem: Problem, order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Give where a result in another order has each non-zero, in CSR order."""
    nnz = problem.matrix.nnz
    if problem.op is not Op.SDDMM:
        raise BuildError(f"expected an order of the result with sddmm only, found one with {problem.op}")
    if order.shape != (nnz,):
        raise BuildError(f"expected an order of the result of shape ({nnz},), found {order.shape}")
    places, inside = np.full(nnz, -1, np.int64), np.flatnonzero((order >= 0) & (order < nnz))
    places[order[inside]] = inside
    missing = int(np.count_nonzero(places < 0))
    if missing:
        raise BuildError(
            f"expected an order of the result that names each of {nnz:,} non-zeros once, found {missing:,} missing"
        )
    return places


@singledispatch
def reference(problem: Any, operands: Sequence[DenseRows], rows: NDArray[np.int64] | None = None) -> Reference:
    """Compute the result in float64 on ``rows`` (default: all of them).

    Parameters
    ----------
    problem : Problem
        The values of A count as the dtype rounds them.
    operands : sequence of DenseRows
        B (K, J), or X (I, J) and Y (K, J): arrays or `RandomOperand`.
    rows : (n,) int64, optional
        Rows of A, increasing.

    Returns
    -------
    Reference
        O(m J) time for m covered non-zeros; J is walked in pieces to bound the memory.
    """
    matrix = problem.matrix
    rows = np.arange(matrix.num_rows, dtype=np.int64) if rows is None else rows
    indptr, entries = matrix.entries_of(rows)
    values = problem.dtype.numbers(problem.values[entries]).astype(np.float64)
    if problem.op is Op.SPMM:
        result, magnitude = _spmm(problem, operands[0], indptr, entries, values)
    else:
        result, magnitude = _sddmm(problem, operands[0], operands[1], np.repeat(rows, np.diff(indptr)), entries)
        if problem.scaled:
            result, magnitude = result * values, magnitude * np.abs(values)
    return Reference(rows, entries, result, magnitude, problem.dtype)


def _spmm(problem: Problem, dense: DenseRows, indptr: Places, entries: Places, values: Wide) -> tuple[Wide, Wide]:
    used, cols = np.unique(problem.matrix.indices[entries], return_inverse=True)
    shape, step = (indptr.size - 1, used.size), max(1, _CHUNK // max(used.size, 1))
    signed, absolute = (sparse.csr_array((one, cols, indptr), shape=shape) for one in (values, np.abs(values)))
    result, magnitude = np.zeros((2, shape[0], problem.width))
    for start in range(0, problem.width, step):
        piece = slice(start, min(start + step, problem.width))
        block = problem.dtype.numbers(dense[used, piece]).astype(np.float64)
        result[:, piece], magnitude[:, piece] = signed @ block, absolute @ np.abs(block)
    return result, magnitude


def _sddmm(problem: Problem, x: DenseRows, y: DenseRows, rows: Places, entries: Places) -> tuple[Wide, Wide]:
    cols = problem.matrix.indices[entries]
    result, magnitude = np.zeros((2, entries.size))
    numbers = problem.dtype.numbers
    step = max(1, _CHUNK // problem.width)
    for start in range(0, entries.size, step):
        part = slice(start, start + step)
        left, right = (numbers(m[i[part], :]).astype(np.float64) for m, i in ((x, rows), (y, cols)))
        result[part] = np.einsum("pj,pj->p", left, right)
        magnitude[part] = np.einsum("pj,pj->p", np.abs(left), np.abs(right))
    return result, magnitude
