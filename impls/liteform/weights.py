"""The cost of a cap as one GPU pays it: the volume that all buckets of one grid move, weighed by measured times.

LiteForm's equations (HPDC 2025, section 5.3) let every bucket read its rows of B anew, as grids of their own would.
Where all buckets are one grid they meet in the L2, so that those rows cost the same under every cap. What differs is
padding, how often rows of C are written, the chain of loads behind the longest row, and the launch that clears rows of
C that several ELL rows are added to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.liteform.cost import POWERS, BucketCounts

CHAIN = 64
"""Slots from which several groups of threads may share a row."""


@dataclass(frozen=True)
class Weights:
    """How much each part of the cost counts on a GPU, in loads and stores of one element.

    `spmark.studies.liteform.schedules` fits the numbers to measured times.
    """

    atomic: float
    """A store that adds to C, over a plain store."""
    slot: float
    """A slot's load of a row of B, padded or not: from a cache, since the first load of a row is under every cap."""
    chain: float
    """A slot of the widest row, up to `CHAIN`."""
    beyond: float
    """A slot of the widest row beyond `CHAIN`."""
    launch: float
    """Clearing the rows that are added up: one more launch."""


def weighed(counts: BucketCounts, width: int, weights: Weights, tail_in_last: bool = False) -> NDArray[np.float64]:
    """Give the cost of every partition under every cap of the bucket widths.

    Parameters
    ----------
    counts : BucketCounts
    width : int
        J.
    weights : Weights
    tail_in_last : bool
        Whether the rest of a folded row stays in the widest bucket.

    Returns
    -------
    (partitions, POWERS) float64
        Costs like those of `spmark.impls.liteform.cost.costs`, in the weights' unit. With several partitions every
        store adds to C.
    """
    caps = np.arange(POWERS)
    plain = counts.rows.sum(1, keepdims=True) - counts.longer
    of_cap = counts.rows - np.where(caps == POWERS - 1, counts.longer, 0)
    stored = np.cumsum(counts.slots, 1)
    if tail_in_last:
        added = counts.folded - of_cap
        stored += added << caps
    else:
        added = counts.split
        stored += counts.split_slots
    if counts.partitions > 1:
        added, plain = added + plain, 0 * plain
    stores = plain + counts.longer + weights.atomic * added
    widest = np.left_shift(1, caps)
    chain = weights.chain * np.minimum(widest, CHAIN) + weights.beyond * np.maximum(widest - CHAIN, 0)
    total = 2.0 * stored + width * (stores + weights.slot * stored) + chain + weights.launch * (added > 0)
    possible = caps <= counts.widest[:, None]
    total[~possible] = np.inf
    total[counts.rows.sum(1) == 0, 0] = 0.0
    return np.asarray(total, np.float64)
