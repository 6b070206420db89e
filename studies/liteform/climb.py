"""The hill climb over powers of two by which a matrix's fastest config is looked for.

After the label search of LiteForm's public code (Peng et al., HPDC 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, inf, log2
from typing import NamedTuple

from spmark.impls.liteform.features import Features

_START_DIVISOR = 32


class Point(NamedTuple):
    """Binary logarithms of a config."""

    partitions: int
    width: int


def published_start(features: Features) -> Point:
    """Give where the public code begins: one partition, 1/32 of the mean length rounded up to a power of two."""
    rounded = 2 ** ceil(log2(max(features.avg_length, 1.0)))
    return Point(0, max(0, (rounded // _START_DIVISOR).bit_length() - 1))


def neighbours(point: Point, most: Point) -> list[Point]:
    """Give the up to eight points one step away in either direction or both."""
    steps = [(p, w) for p in (-1, 0, 1) for w in (-1, 0, 1) if p or w]
    points = [Point(point.partitions + p, point.width + w) for p, w in steps]
    return [n for n in points if 0 <= n.partitions <= most.partitions and 0 <= n.width <= most.width]


def climb(
    start: Point,
    most: Point,
    time_us: Callable[[Point], float],
    announce: Callable[[Sequence[Point]], None] = lambda _: None,
) -> dict[Point, float]:
    """Walk over the configs depth first, on to each neighbour that is not slower than the config before it.

    Parameters
    ----------
    start, most : Point
        Where to begin, and the largest powers.
    time_us : callable
        Time of a config, infinite where it fails; asked once for each.
    announce : callable
        Told of all neighbours that are timed next, before the first of them is.

    Returns
    -------
    dict
        Time of every config that was asked for.
    """
    seen = {start: time_us(start)}
    stack = [start]
    while stack:
        here = stack.pop()
        fresh = [there for there in neighbours(here, most) if there not in seen]
        announce(fresh)
        for there in fresh:
            seen[there] = time_us(there)
            if seen[there] <= seen[here] and seen[there] < inf:
                stack.append(there)
    return seen
