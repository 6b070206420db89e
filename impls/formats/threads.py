"""Compiled loops on several cores: the loops release Python's lock, so plain threads suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.machine import allowed_cores, side_by_side

_MOST = 16
"""Threads beyond which a conversion, which moves memory, gains nothing."""
SHARE = 1 << 18
"""Least work of a task, in non-zeros or rows: to make a thread for less takes as long as to do it."""


MAX_SCRATCH = 1 << 30
"""Most bytes of the scratch arrays of all tasks of a step."""


def cores() -> int:
    """Give the cores that this process may use, as far as a conversion gains from them."""
    return min(len(allowed_cores()), _MOST)


def with_scratch(tasks: int, nbytes: int) -> int:
    """Give how many of ``tasks`` have room where each has ``nbytes`` of scratch to itself; one always has."""
    return max(1, min(tasks, MAX_SCRATCH // max(nbytes, 1)))


def run_all(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Call ``function`` with each task's arguments, on several cores where there are several tasks.

    Returns
    -------
    list
        The results, in the order of the tasks.
    """
    return side_by_side(lambda task: function(*task), list(tasks), cores())


def equal_shares(indptr: NDArray[Any], tasks: int = 0) -> NDArray[np.int64]:
    """Cut rows, windows or pieces into ranges of about equal cost, their non-zeros and one each, for one task each.

    Parameters
    ----------
    indptr : (I + 1,) integers
        Non-zeros before each row, from 0.
    tasks : int
        Most ranges; by default as many as a conversion gains from.

    Returns
    -------
    (n + 1,) int64
        Bounds from 0 to I, rising. O(I).
    """
    cost = indptr + np.arange(indptr.size)
    tasks = tasks or int(np.clip(cost[-1] // SHARE, 1, 4 * cores()))
    return np.unique(np.searchsorted(cost, np.linspace(0, cost[-1], tasks + 1)))
