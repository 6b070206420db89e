"""The most that a file's claims may cost: a header need not be true, and a short file can claim much."""

from __future__ import annotations

from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.problem import MAX_NNZ
from spmark.impls.core.settings import positive_number

VARIABLE = "SPMARK_MAX_MATRIX_GIB"
DEFAULT_GIB = 8.0
_BYTES_OF_A_LINE = 16
"""Bytes for each row or column while a matrix is read, sorted and counted, whether or not it has entries."""


def ceiling_bytes() -> int:
    """Give the ceiling that the environment sets.

    Raises
    ------
    DatasetError
        The variable does not hold a positive number.
    """
    return int(positive_number(VARIABLE, DEFAULT_GIB, "GiB", DatasetError) * (1 << 30))


def check_bytes(where: str, what: str, claimed: int) -> None:
    """Refuse a claim of more memory or disk than the ceiling.

    Raises
    ------
    DatasetError
        Says how much is claimed, and which variable raises the ceiling.
    """
    ceiling = ceiling_bytes()
    if claimed > ceiling:
        raise DatasetError(
            f"{where}: expected {what} to take at most {ceiling / (1 << 30):.3g} GiB, found a claim of "
            f"{claimed / (1 << 30):.3g} GiB; if the claim is right and this machine has so much, set {VARIABLE}"
        )


def check_shape(where: str, num_rows: int, num_cols: int, nnz: int = 0) -> None:
    """Refuse sizes that int32 cannot count, and more rows and columns than the ceiling allows.

    Entries have to stand in the file, so each reader compares their number with the file's bytes. Rows and columns may
    be empty.

    Raises
    ------
    MatrixError
        A size is beyond 2^31 - 1.
    DatasetError
        A size is negative, or rows and columns are beyond the ceiling.
    """
    if min(num_rows, num_cols, nnz) < 0:
        raise DatasetError(f"{where}: expected sizes of 0 and more, found {num_rows} x {num_cols} with {nnz} entries")
    if max(num_rows, num_cols, nnz) > MAX_NNZ:
        raise MatrixError(
            f"{where}: expected at most 2^31 - 1 rows, columns and non-zeros (indices are int32), "
            f"found {num_rows} x {num_cols} with {nnz:,} entries"
        )
    check_bytes(where, f"{num_rows:,} rows and {num_cols:,} columns", _BYTES_OF_A_LINE * (num_rows + num_cols))
