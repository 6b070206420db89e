"""Tasks side by side, in the processes of a pool where there is one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import TypeVar

from spmark.report.texts import python_texts

_Made = TypeVar("_Made")


def each(makers: Sequence[Callable[[], _Made]], sizes: Sequence[int], pool: Executor | None) -> Iterator[_Made]:
    """Give what each maker makes, in order; a pool begins at once, with the largest so that none is left at the end."""
    if pool is None:
        return (make() for make in makers)
    begun: dict[int, Future[_Made]] = {}
    for place in sorted(range(len(makers)), key=lambda place: -sizes[place]):
        begun[place] = pool.submit(_made, makers[place])
    return (begun[place].result() for place in range(len(makers)))


def shared(value: _Made, pool: Executor | None) -> Callable[[], _Made]:
    """Give what gives a value to several makers: a pool is sent the same bytes for each, since pickling takes long."""
    if pool is None:
        return lambda: value
    # The pool pickles what it sends in any case; no file is read this way.
    return partial(pickle.loads, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


@python_texts()
def _made(make: Callable[[], _Made]) -> _Made:
    return make()
