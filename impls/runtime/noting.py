"""Note what a plan launches: kernels with their arguments, beside the launch itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from spmark.impls.core.files import within


class Noted(NamedTuple):
    """A launch of a kernel."""

    function: int
    """The driver's handle."""
    grid: tuple[int, int, int]
    threads: int
    args: Sequence[Any]
    """Arrays on the device and NumPy scalars."""
    shared_bytes: int
    overlap: bool
    """Whether the launch may begin before the one before it has ended."""


_NOTES: ContextVar[list[Noted] | None] = ContextVar("notes", default=None)


@contextmanager
def noted() -> Iterator[list[Noted]]:
    """Give a list that holds the launches of this thread once the ``with`` statement is left."""
    launches: list[Noted] = []
    with within(_NOTES, launches):
        yield launches


def note(function: Any, *launch: Any) -> None:
    """Note a launch of a function of CuPy where somebody asked for that; the rest is as of `Noted`."""
    if (launches := _NOTES.get()) is not None:
        launches.append(Noted(function.ptr, *launch))
