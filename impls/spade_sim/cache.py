"""The cache that all PEs share: fully associative, LRU, written back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from spmark.impls.spade_sim import loops


class LruCache:
    """A cache of equal slots, empty at first.

    Parameters
    ----------
    slots : int
        Items that the cache holds; 0 means that nothing is kept.
    items : int
        Items that there are.
    operands : iterable of int
        What passes through the cache: ``loops.SPARSE``, ``loops.ROWS`` and ``loops.COLUMNS``, or some of these.
    """

    def __init__(self, slots: int, items: int, operands: Iterable[int]) -> None:
        slots = min(slots, items)
        numbers = np.arange(slots + 1, dtype=np.int32)
        self._ring = np.stack([np.roll(numbers, -1), np.roll(numbers, 1)])
        self._held = np.stack([np.full(slots, -1, np.int32), np.zeros(slots, np.int32)])
        self._slot_of = np.full(items, -1, np.int32)
        self._cached = np.zeros(3, np.uint8)
        self._cached[list(operands)] = slots > 0

    def answer(self, accesses: NDArray[np.int32], counts: NDArray[np.int64]) -> int:
        """Answer accesses (3, n) in their order, and give the segments written to DRAM; `loops.answer` says more."""
        written: int = loops.answer(accesses, self._cached, self._slot_of, self._ring, self._held, counts)
        return written

    @property
    def dirty(self) -> int:
        """Segments that must still be written to DRAM."""
        return int(self._held[1].sum())
