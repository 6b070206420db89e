"""What functions made of a frame, kept while one part of a report is made.

A sweep's figures at two widths, its tables and its findings ask for the same means of the same frame. Frames of a
report are never written into, so that what was made of a frame holds as long as the frame lives.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pandas as pd

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_KEPT: ContextVar[dict[Hashable, tuple[Any, ...]] | None] = ContextVar("_KEPT", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Keep the results of functions that are `remembered`, until the outermost such block ends."""
    if _KEPT.get() is not None:
        yield
        return
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def remembered(make: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let a function give its earlier result again inside of `remembering`; elsewhere the function is as it was.

    Frames and series among the arguments count by identity; all other arguments must be hashable, or lists of such. The
    caller must not write into the result.
    """

    @wraps(make)
    def made(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        kept = _KEPT.get()
        if kept is None:
            return make(*args, **kwargs)
        key = (make, *map(_key, args), *((name, _key(value)) for name, value in kwargs.items()))
        if key not in kept:
            # The arguments are held as well: no later frame can then have their identity.
            kept[key] = make(*args, **kwargs), args, kwargs
        result: _Result = kept[key][0]
        return result

    return made


def _key(argument: Any) -> Hashable:
    if isinstance(argument, pd.DataFrame | pd.Series):
        return id(argument)
    return tuple(argument) if isinstance(argument, list) else argument
