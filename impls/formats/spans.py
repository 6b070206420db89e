"""Runs of equal values, and elements of spans, in arrays of NumPy or CuPy.

`spmark.impls.core.problem` has the like for NumPy alone; these here wait for no GPU, where the caller knows the total.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def openings(xp: Any, values: Any) -> Any:
    """Mark each of (n,) values that differs from the one before it; the first always does."""
    marks = xp.ones(values.size, np.bool_)
    marks[1:] = values[1:] != values[:-1]
    return marks


def lengths(xp: Any, begins: Any, end: int) -> Any:
    """Give the lengths of spans that begin there and of which the last one ends at ``end``."""
    return xp.append(begins[1:], end)[: begins.size] - begins


def numbered(xp: Any, spans: Any, total: int) -> tuple[Any, Any]:
    """Give the span of each element of all spans of these lengths, ``total`` elements, and its number within it."""
    ends = xp.cumsum(spans, dtype=np.int64)
    every = xp.arange(total)
    span = xp.searchsorted(ends, every, side="right")
    return span, every - (ends - spans)[span]
