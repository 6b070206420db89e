"""Arrays that are cut into spans: where each span begins, and which span has which element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def offsets(lengths: NDArray[Any], dtype: DTypeLike = np.int64) -> NDArray[Any]:
    """Give where each of n spans begins and the last one ends, (n + 1,), from their lengths (n,)."""
    bounds = np.zeros(lengths.size + 1, dtype)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def numbered(lengths: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the span of each element of all spans, and its number within that span, both (sum of lengths,)."""
    span = np.repeat(np.arange(lengths.size), lengths)
    return span, np.arange(span.size) - np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, lengths)


def openings(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark each of (n,) values that differs from the one before it; the first always does."""
    marks = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=marks[1:])
    return marks


def grouped(spans: NDArray[np.int32], count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sort elements by their span, (n,) int32 out of ``count``; those of a span keep their order. O(n + count).

    Returns
    -------
    order : (n,) int32
        The elements, span by span.
    bounds : (count + 1,) int32
        Where each span begins in ``order``, and the last one ends.
    """
    from scipy import sparse

    at = np.arange(spans.size + 1, dtype=np.int32)
    sorted_ = sparse.csr_array((np.empty(spans.size, np.bool_), spans, at), shape=(spans.size, count)).tocsc()
    return sorted_.indices, sorted_.indptr
