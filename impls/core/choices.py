"""Refusing what is none of a few known values: one sentence, with a hint where a name is misspelt."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 100
"""Comparing takes time that grows with the square; no name is this long."""


def near(found: str, known: Iterable[str]) -> str:
    """Give `` (did you mean ...?)`` where something known is spelt much like ``found``, else an empty string."""
    matches = get_close_matches(found[:_LONGEST], list(known), 1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def none_of(what: str, found: object, known: Iterable[object]) -> str:
    """Say that ``found`` is none of what is known: ``expected a source out of snap, ogb, found 'snp' (did you ...?)``.

    Parameters
    ----------
    what : str
        What the known values are, after the word "expected".
    found : object
        Only text brings a hint.
    known : iterable of str or numbers
    """
    names = [str(one) for one in known]
    hint = near(found, names) if isinstance(found, str) else ""
    return f"expected {what} out of {', '.join(names)}, found {found!r}{hint}"


def check_choices(config: object, **known: Iterable[object]) -> None:
    """Refuse a tunable, given by its name, whose value in ``config`` is none of the known ones.

    Raises
    ------
    ValueError
        Says which one, what is known and what was found.
    """
    for name, values in known.items():
        legal, value = list(values), getattr(config, name)
        if value not in legal:
            raise ValueError(none_of(name, value, legal))
