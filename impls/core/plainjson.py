"""JSON from files that others may have written, parsed into plain data within a limit of depth.

Parsers, printers and other code on nested data call themselves once a level, and a file may have any number of levels.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

MAX_DEPTH = 50
"""Lists and mappings inside each other; files that spmark writes have less than ten."""
Model = TypeVar("Model", bound=BaseModel)
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class NoJsonError(ValueError):
    """A text is not JSON, or is nested too deeply."""


def parse_json(text: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises
    ------
    NoJsonError
        The text is not JSON, or has more than `MAX_DEPTH` levels.
    """
    _check_depth(text)
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
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
    _check_depth(text)
    try:
        return kind.model_validate_json(text, context=context)
    except ValidationError as error:
        if any(one["type"] == "json_invalid" and not one["loc"] for one in error.errors(include_url=False)):
            raise NoJsonError(str(error)) from error
        raise


def _check_depth(text: bytes) -> None:
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise NoJsonError(f"expected at most {MAX_DEPTH} levels inside each other, found more")
        elif first in b"]}":
            depth -= 1
