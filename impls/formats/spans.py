"""Elements of spans, in arrays of NumPy or CuPy.

`spmark.impls.core.problem` has the like for NumPy alone; these here wait for no GPU, where the caller knows the total.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def lengths(xp: Any, begins: Any, end: int) -> Any:
    """Give the lengths of spans that begin there and of which the last one ends at ``end``."""
    return xp.append(begins[1:], end)[: begins.size] - begins


def numbered(xp: Any, spans: Any, total: int) -> tuple[Any, Any]:
    """Give the span of each element of all spans of these lengths, ``total`` elements, and its number within it."""
    ends = xp.cumsum(spans, dtype=np.int64)
    every = xp.arange(total)
    span = xp.searchsorted(ends, every, side="right")
    return span, every - (ends - spans)[span]


def cut(xp: Any, begins: Any, end: int, longest: int) -> tuple[Any, Any]:
    """Cut spans into pieces of ``longest`` elements at most; give the first element of each piece, and its span."""
    counts = -(-lengths(xp, begins, end) // longest)
    span, number = numbered(xp, counts, int(counts.sum()))
    return begins[span] + number * longest, span
