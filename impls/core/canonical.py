"""The way from a sparse matrix of SciPy to a canonical CSR: its arrays are checked, and its duplicates added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from spmark.impls.core.errors import MatrixError

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
