"""The search for bucket widths: how wide the widest bucket of each column partition may be at least cost.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, algorithm 3, which bisects; their public code scans every
cap instead. Both are here, and the scan is the default: it finds the least cost whatever its shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Method(StrEnum):
    """How caps are searched."""

    LINEAR = "linear"
    """Every cap from the widest down, as the public code does; of equal costs the wider cap."""
    BINARY = "binary"
    """Algorithm 3, its middle rounded down to a power of two."""


@dataclass(frozen=True, eq=False)
class Widths:
    """The caps that were found."""

    powers: NDArray[np.int64]
    """(partitions,) binary logarithm of each partition's widest bucket."""
    cost: float
    """Sum over the partitions."""
    evaluated: int
    """How many costs of a partition under a cap were looked at."""


def search(table: NDArray[np.float64], widest: NDArray[np.int64], method: Method = Method.LINEAR) -> Widths:
    """Find each partition's cap.

    Parameters
    ----------
    table : (partitions, POWERS) float64
        Of `spmark.impls.liteform.cost.costs` or `weighed`.
    widest : (partitions,) int64
        `spmark.impls.liteform.cost.BucketCounts.widest`: no cap beyond it is looked at.
    method : Method
    """
    pick = _scan if method is Method.LINEAR else _bisect
    picks = [pick(line, int(top)) for line, top in zip(table, widest, strict=True)]
    powers = np.array([power for power, _ in picks], np.int64)
    total = float(table[np.arange(powers.size), powers].sum())
    return Widths(powers, total, sum(evaluated for _, evaluated in picks))


def _scan(line: NDArray[np.float64], top: int) -> tuple[int, int]:
    part = line[: top + 1]
    return top - int(np.argmin(part[::-1])), top + 1


def _bisect(line: NDArray[np.float64], top: int) -> tuple[int, int]:
    """Follow algorithm 3 on widths; a middle of two powers of two is rounded down to one.

    With the left end at 1 that is half of the right end: the search walks down and stops at the first rise.
    """
    left, right, evaluated = 1, 1 << top, 0
    while left < right:
        middle = 1 << (((left + right) // 2).bit_length() - 1)
        evaluated += 2
        if line[middle.bit_length() - 1] > line[middle.bit_length()]:
            left = 2 * middle
        else:
            right = middle
    return left.bit_length() - 1, evaluated
