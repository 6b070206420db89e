"""The limit of what a format may hold: padding can multiply a matrix, so a padded format asks before it allocates."""

from __future__ import annotations

from spmark.impls.core.errors import BuildError

MAX_STORED = 1 << 28
"""Elements that a padded format holds at most: 1 GiB of float32 values, as much again of indices."""


def check_stored(name: str, shape: tuple[int, int], nnz: int, stored: int, most: int | None = None) -> None:
    """Refuse a conversion before it allocates.

    Parameters
    ----------
    name : str
        Format and parameters, for the message.
    shape : (I, K)
    nnz : int
        Non-zeros of the matrix.
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
        raise BuildError(
            f"{name} of a {shape[0]} x {shape[1]} matrix with {nnz:,} non-zeros: expected at most "
            f"{most:,} stored elements, found {stored:,} ({stored / max(nnz, 1):,.1f} per non-zero)"
        )
