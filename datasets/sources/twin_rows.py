"""The compiled loops behind `spmark.datasets.sources.twin`, in a module of their own since importing Numba takes long.

The caller (`spmark.datasets.sources.twin.draw`) allocates every buffer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class AliasTable(NamedTuple):
    """Draws in proportion to weights: for uniform i, item i with probability ``keep[i]``, else ``alias[i]``."""

    keep: Any
    """(n,) float64: probability of keeping each item."""
    alias: Any
    """(n,) int32: item that takes the place of each one not kept."""


@njit  # type: ignore[untyped-decorator]
def _mixed(state: Any) -> Any:
    """SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014)."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


@njit  # type: ignore[untyped-decorator]
def _below(word: Any, bound: Any) -> Any:
    """Scale the upper 32 bits of a random word to [0, bound), bound below 2^32."""
    return np.int64(((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit  # type: ignore[untyped-decorator]
def _drawn(table: Any, first: Any, size: Any, word: Any) -> Any:
    """Draw one of ``size`` items that start at ``first``, numbered from 0: upper bits choose it, lower bits keep it.

    ``table`` is an `AliasTable`, ``word`` a random uint64.
    """
    item = _below(word, size)
    if (word & np.uint64(0x7FFFFFFF)) * (1.0 / 2147483648.0) < table.keep[first + item]:
        return item
    return np.int64(table.alias[first + item])


@njit  # type: ignore[untyped-decorator]
def _lowest(word: Any) -> Any:
    """Give the place of a word's lowest bit."""
    return math.frexp(np.float64(word & (~word + np.uint64(1))))[1] - 1  # n of 2^n


@njit  # type: ignore[untyped-decorator]
def draw_rows(  # noqa: PLR0917 (numba takes no keyword-only arguments)
    indptr: Any,
    indices: Any,
    members: Any,
    starts: Any,
    community: Any,
    everyone: Any,
    own: Any,
    inside: float,
    seed: Any,
) -> None:
    """Draw the columns of every row, increasing and without repeats.

    Parameters
    ----------
    indptr : (n + 1,) int32
        The wanted rows: row i gets the entries ``indptr[i]:indptr[i + 1]``.
    indices : (nnz,) int32
        Written: the column of each entry.
    members : (n,) int32
        Columns by community; community c has ``members[starts[c]:starts[c + 1]]``.
    starts : (communities + 1,) int64
        Where each community begins in ``members``.
    community : (n,) int32
        Community of every row.
    everyone : AliasTable
        Draws among all columns.
    own : AliasTable
        Draws among the members of a community: one table after the other, each numbered from 0.
    inside : float
        Share of a row's entries drawn from its community.
    seed : uint64
    """
    num_rows = indptr.size - 1
    words = np.zeros((num_rows + 63) // 64, np.uint64)
    used = np.zeros((words.size + 63) // 64, np.uint64)  # which words have a bit
    one = np.uint64(1)
    for row in range(num_rows):
        length = indptr[row + 1] - indptr[row]
        first = starts[community[row]]
        size = starts[community[row] + 1] - first
        # At most half of a community is drawn: beyond that, most draws would repeat a column.
        local = min(np.int64(inside * length + 0.5), size // 2)
        state = _mixed((seed + one) * _GOLDEN ^ np.uint64(row))
        taken = 0
        while taken < length:
            state += _GOLDEN
            word = _mixed(state)
            if taken < local:
                column = np.int64(members[first + _drawn(own, first, size, word)])
            else:
                column = _drawn(everyone, 0, num_rows, word)
            slot, bit = column >> 6, one << np.uint64(column & 63)
            if words[slot] & bit == 0:
                words[slot] |= bit
                used[slot >> 6] |= one << np.uint64(slot & 63)
                taken += 1
        at = indptr[row]
        for group in range(used.size):
            slots = used[group]
            used[group] = np.uint64(0)
            while slots:
                slot = group * 64 + _lowest(slots)
                slots &= slots - one
                left = words[slot]
                words[slot] = np.uint64(0)
                while left:
                    indices[at] = slot * 64 + _lowest(left)
                    at += 1
                    left &= left - one
