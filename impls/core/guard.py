"""The guard around every parser: its exceptions on a damaged or hostile file become errors of spmark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from spmark.impls.core.errors import DatasetError, SpmarkError
from spmark.impls.core.names import printable

_LONGEST_DETAIL = 500
"""Letters that are kept of a parser's message, which may quote the whole file."""


@contextlib.contextmanager
def reading(
    path: Path | str, expected: str, error: type[SpmarkError] = DatasetError, remedy: str = ""
) -> Iterator[None]:
    """Turn every exception of the parsers that run inside into ``error``.

    Errors of spmark pass through, as do `KeyboardInterrupt` and its kin.

    Parameters
    ----------
    path : Path or str
        The file, and the line where the caller knows it.
    expected : str
        What the file should hold, after the word "expected".
    error : type of SpmarkError
        Raised in place of the parser's exception.
    remedy : str
        What the reader of the message can do where the file holds something else.

    Raises
    ------
    SpmarkError
        Says the file, what was expected and what the parser met.
    """
    try:
        yield
    except SpmarkError:
        raise
    except Exception as fault:
        if isinstance(fault, PermissionError):
            remedy = "give this account the right to read it"
        raise error(f"{path}: expected {expected}, found {_told(fault)}" + (f"; {remedy}" if remedy else "")) from fault


def _told(fault: Exception) -> str:
    """Describe a parser's exception in one short line that a terminal can show."""
    if isinstance(fault, FileNotFoundError):
        return "no such file"
    if isinstance(fault, OSError) and fault.strerror:
        return f"an unreadable file ({fault.strerror})"
    if isinstance(fault, MemoryError):
        return "more than fits into memory"
    if isinstance(fault, RecursionError):
        return "parts that are nested too deeply"
    message = " ".join(str(fault).split())
    shown = printable(message)[:_LONGEST_DETAIL]
    return f"something else ({type(fault).__name__}: {shown})" if shown else f"something else ({type(fault).__name__})"
