"""Messages that refuse a value of another type or outside of a few known ones, with a hint where a name is misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field
from difflib import get_close_matches
from inspect import formatannotation
from numbers import Integral, Real
from typing import Any

_LONGEST = 100
"""Letters that are compared: the time grows with their square, and every known name is shorter."""
_TYPES: Mapping[str, tuple[type, str]] = {
    "None": (type(None), "null"),
    "bool": (bool, "true or false"),
    "int": (Integral, "an integer, written in digits"),
    "float": (Real, "a number, written in digits"),
    "str": (str, "a text"),
}
"""What an annotation asks of a value, by its words. The abstract types take NumPy's numbers, too."""


def near(found: str, known: Iterable[str]) -> str:
    """Give the hint `` (did you mean ...?)`` where a known name is spelt much like ``found``, else an empty string.

    Few misspell the first letter, and names with other digits mean other things: a GPU is no CPU, an A100 no H200.
    """
    found = found[:_LONGEST]
    alike = [name for name in known if _not_misspelt(name) == _not_misspelt(found)]
    matches = get_close_matches(found, alike, 1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def _not_misspelt(name: str) -> tuple[str, list[str]]:
    return name[:1].casefold(), sorted(filter(str.isdigit, name))


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


def check_type(tunable: Field[Any], value: object) -> None:
    """Refuse a value of another type than the field of a tunable is annotated with.

    Only unions of bool, int, float, str and None are checked: what other annotations mean, their class knows.

    Raises
    ------
    TypeError
        Names the tunable and what its value must be.
    """
    annotation = tunable.type if isinstance(tunable.type, str) else formatannotation(tunable.type)
    words = [word.strip() for word in annotation.split("|")]
    if not all(word in _TYPES for word in words):
        return
    # Python counts True among the integers; YAML takes 1e9 for a text.
    fits = isinstance(value, tuple(_TYPES[word][0] for word in words))
    if not fits or (isinstance(value, bool) and "bool" not in words):
        raise TypeError(f"{tunable.name} must be {' or '.join(_TYPES[word][1] for word in words)}")
