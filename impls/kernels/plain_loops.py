"""Loops of SpMM and SDDMM over the rows of CSR in float64, for the host."""

from __future__ import annotations

from typing import Any

from numba import types

from spmark.impls.core.loops import compiled


def _spmm(start: Any, stop: Any, indptr: Any, indices: Any, values: Any, dense: Any, out: Any) -> None:  # noqa: PLR0917
    """Write rows ``start`` to ``stop`` of ``out[i, j] = sum_k A[i, k] dense[k, j]``.

    Parameters
    ----------
    start, stop : int
        Rows of A.
    indptr, indices, values
        A in CSR: (I + 1,) int32, (nnz,) int32, (nnz,) float64.
    dense : (K, J)
        B.
    out : (I, J)
        C; every element of the rows is written.
    """
    for i in range(start, stop):
        row = out[i]
        row[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            value, term = values[p], dense[indices[p]]
            for j in range(row.size):
                row[j] += value * term[j]


def _sddmm(  # noqa: PLR0917
    start: Any, stop: Any, indptr: Any, indices: Any, factors: Any, x: Any, y: Any, out: Any
) -> None:
    """Write ``out[p] = sum_j x[i, j] y[k, j]`` at the non-zeros of rows ``start`` to ``stop``, times ``factors[p]``.

    Parameters
    ----------
    start, stop : int
        Rows of A.
    indptr, indices
        A's pattern in CSR: (I + 1,) int32, (nnz,) int32.
    factors : (nnz,) or (0,)
        A's values where results are scaled by them, else empty.
    x, y : (I, J), (K, J)
        X and Y.
    out : (nnz,)
        D, in A's CSR order.
    """
    for i in range(start, stop):
        left = x[i]
        for p in range(indptr[i], indptr[i + 1]):
            right = y[indices[p]]
            total = left[0] * right[0]
            for j in range(1, left.size):
                total += left[j] * right[j]
            out[p] = total * factors[p] if factors.size else total


def _signature(*dimensions: int) -> tuple[Any, ...]:
    """Give the types of a loop: two rows, the pattern, then arrays of float64, of which the last is written."""
    pattern, kind = types.Array(types.int32, 1, "C", readonly=True), types.float64
    arrays = [types.Array(kind, n, "C", readonly=True) for n in dimensions[:-1]]
    return (types.void, types.int64, types.int64, pattern, pattern, *arrays, types.Array(kind, dimensions[-1], "C"))


spmm = compiled(*_signature(1, 2, 2))(_spmm)
sddmm = compiled(*_signature(1, 2, 2, 1))(_sddmm)
