"""CSR SpMM and SDDMM for the host's cores, compiled by Numba.

A task is a range of rows; tasks are cut so that each has the same share of non-zeros and rows, and one task runs on one
thread, so results do not depend on the order in which tasks run.
"""

from __future__ import annotations

from typing import Any

from numba import njit, prange


# "contract" lets the compiler fuse a multiply and an add, "reassoc" lets it sum in vector lanes; NaN and infinity stay.
@njit(parallel=True, fastmath={"contract"}, error_model="numpy", nogil=True)  # type: ignore[untyped-decorator]
def spmm(  # noqa: PLR0917
    tasks: Any, indptr: Any, indices: Any, values: Any, dense: Any, out: Any
) -> None:
    """Compute ``out[i, j] = sum_k A[i, k] dense[k, j]``.

    Parameters
    ----------
    tasks : (n + 1,) int64
        Rows of task t are ``tasks[t]:tasks[t + 1]``; made by `spmark.impls.formats.threads.equal_shares`, read.
    indptr, indices, values
        A in CSR: (I + 1,) int32, (nnz,) int32, (nnz,) float32; read.
    dense : (K, J) float32
        B, the caller's operand; read.
    out : (I, J) float32
        C; every element is written.
    """
    for task in prange(tasks.size - 1):
        for i in range(tasks[task], tasks[task + 1]):
            row = out[i]
            row[:] = 0
            for p in range(indptr[i], indptr[i + 1]):
                value = values[p]
                term = dense[indices[p]]
                for j in range(row.size):
                    row[j] += value * term[j]


@njit(parallel=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy", nogil=True)  # type: ignore[untyped-decorator]
def sddmm(  # noqa: PLR0917
    tasks: Any, indptr: Any, indices: Any, scale: Any, scaled: Any, x: Any, y: Any, out: Any
) -> None:
    """Compute ``out[p] = sum_j x[i, j] y[k, j]``, times ``scale[p]`` if ``scaled``, at A's non-zeros.

    Parameters
    ----------
    tasks, indptr, indices
        As in `spmm`.
    scale : (nnz,) float32
        Not read unless ``scaled``.
    scaled : bool
        Whether results are multiplied by ``scale``.
    x, y : (I, J), (K, J) float32
        X and Y, the caller's operands; read.
    out : (nnz,) float32
        D, in A's CSR order; every element is written.
    """
    for task in prange(tasks.size - 1):
        for i in range(tasks[task], tasks[task + 1]):
            left = x[i]
            for p in range(indptr[i], indptr[i + 1]):
                right = y[indices[p]]
                total = left[0] * right[0]
                for j in range(1, left.size):
                    total += left[j] * right[j]
                out[p] = total * scale[p] if scaled else total
