"""The limit of what a format may hold: padding can multiply a matrix, so a padded format asks before it allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spmark.impls.core.errors import BuildError

if TYPE_CHECKING:
    from spmark.impls.core.problem import Csr
    from spmark.impls.formats.hyb import Pieces

MAX_STORED = 1 << 28
"""Elements that a padded format holds at most: 1 GiB of float32 values, as much again of indices."""


def check_stored(name: str, matrix: Csr | Pieces, stored: int, most: int | None = None) -> None:
    """Refuse a conversion before it allocates.

    Parameters
    ----------
    name : str
        Format and parameters, for the message.
    matrix : Csr or Pieces
    stored : int
        Elements that the format would hold, padding included.
    most : int, optional
        How many elements it may hold; by default `MAX_STORED`.

    Raises
    ------
    BuildError
        Says how many elements the format would hold, in all and per non-zero.
    """
    most = MAX_STORED if most is None else most
    if stored > most:
        num_rows, num_cols = matrix.shape
        raise BuildError(
            f"{name} of a {num_rows} x {num_cols} matrix with {matrix.nnz:,} non-zeros: expected at most "
            f"{most:,} stored elements, found {stored:,} ({stored / max(matrix.nnz, 1):,.1f} per non-zero)"
        )
