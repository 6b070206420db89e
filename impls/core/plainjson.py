"""JSON from files that others may have written, parsed into plain data of about 200 levels at most inside each other.

Code on nested data calls itself once a level, and a file may have any number of levels: pydantic's parser refuses them,
while that of the standard library takes about a thousand.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

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
