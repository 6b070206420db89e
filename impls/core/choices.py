"""Messages that refuse a value outside of a few known ones, with a hint where a name is misspelt."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 100
"""Letters that are compared: the time grows with their square, and every known name is shorter."""


def near(found: str, known: Iterable[str]) -> str:
    """Give the hint `` (did you mean ...?)`` where a known name is spelt much like ``found``, else an empty string."""
    matches = get_close_matches(found[:_LONGEST], list(known), 1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def none_of(what: str, found: object, known: Iterable[object]) -> str:
    """Give the message that refuses ``found``: ``expected a source out of snap, ogb, found 'snp' (did you ...?)``.

    Parameters
    ----------
    what : str
        What the known values are, after the word "expected".
    found : object
        The refused value; only a text gets a hint.
    known : iterable of str or numbers
    """
    names = [str(one) for one in known]
    hint = near(found, names) if isinstance(found, str) else ""
    return f"expected {what} out of {', '.join(names)}, found {found!r}{hint}"


def check_choices(config: object, **known: Iterable[object]) -> None:
    """Refuse a config in which a tunable has a value outside of those known for its name.

    Raises
    ------
    ValueError
        Names the tunable, its known values and the value that was found.
    """
    for name, values in known.items():
        legal, value = list(values), getattr(config, name)
        if value not in legal:
            raise ValueError(none_of(name, value, legal))
