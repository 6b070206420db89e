"""How much a format may hold: padding can multiply a matrix, so every padded format asks before it allocates."""

from __future__ import annotations

from typing import Protocol

from spmark.impls.core.errors import BuildError

MAX_STORED = 1 << 28
"""Elements that a padded format holds unless told otherwise: 1 GiB of float32 values, as much again of indices."""


class Counted(Protocol):
    """A matrix, or what stands for one."""

    @property
    def shape(self) -> tuple[int, int]:
        """(I, K)."""
        ...

    @property
    def nnz(self) -> int:
        """Its non-zeros."""
        ...


def check_stored(name: str, matrix: Counted, stored: int, max_stored: int) -> None:
    """Refuse a conversion before it allocates.

    Parameters
    ----------
    name : str
        Format and parameters, for the message.
    stored : int
        Elements that it would hold, padding included.

    Raises
    ------
    BuildError
        Says how many elements, and how many times the non-zeros that is.
    """
    if stored > max_stored:
        num_rows, num_cols = matrix.shape
        raise BuildError(
            f"{name} of a {num_rows} x {num_cols} matrix with {matrix.nnz:,} non-zeros: expected at most "
            f"{max_stored:,} stored elements, found {stored:,} ({stored / max(matrix.nnz, 1):,.1f} per non-zero)"
        )
