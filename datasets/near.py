"""Hints for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 100
"""Comparing takes time that grows with the square; no name is this long."""


def near(found: str, known: Iterable[str]) -> str:
    """Give `` (did you mean ...?)`` where something known is spelt much like ``found``, else an empty string."""
    matches = get_close_matches(found[:_LONGEST], list(known), 1)
    return f" (did you mean {matches[0]}?)" if matches else ""
