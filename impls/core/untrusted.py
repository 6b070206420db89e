"""What is read out of files that others may have written: a guard around every parser, JSON, and the base of models.

The guard makes errors of spmark out of a parser's exceptions on a damaged or hostile file. Code on nested data calls
itself once a level, and a file may have any number of levels: JSON is therefore parsed by pydantic's parser, which
refuses more than about 200 levels, while that of the standard library takes about a thousand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from spmark.impls.core.errors import DatasetError, SpmarkError, printable

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


Model = TypeVar("Model", bound=BaseModel)


class NoJsonError(ValueError):
    """A text is not JSON, or is nested too deeply."""


def parse_json(text: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises
    ------
    NoJsonError
        The text is not JSON, or is nested too deeply.
    """
    try:
        return from_json(text)
    except ValueError as error:
        raise NoJsonError(str(error)) from error


def parse_model(kind: type[Model], text: bytes, context: object = None) -> Model:
    """Parse JSON in UTF-8 into a model, whose validators are handed the ``context``.

    Raises
    ------
    NoJsonError
        As `parse_json`.
    pydantic.ValidationError
        The text is JSON, but not of this kind.
    """
    try:
        return kind.model_validate_json(text, context=context)
    except ValidationError as error:
        if any(one["type"] == "json_invalid" and not one["loc"] for one in error.errors(include_url=False)):
            raise NoJsonError(str(error)) from error
        raise


class Frozen(BaseModel):
    """Immutable data that refuse unknown keys, so that a misspelt key is an error and is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
