"""What composing chose for a matrix: the order of rows, the widths of buckets, and what a plan tells of both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Problem
from spmark.impls.formats.nearness import RowOrder
from spmark.impls.liteform.cost import BucketCounts, capped
from spmark.impls.liteform.search import Widths


class BucketOrder(StrEnum):
    """How rows stand within a bucket."""

    AUTO = "auto"
    GIVEN = "given"
    GATHERED = "gathered"


@dataclass(frozen=True, eq=False)
class Composition:
    """CELL as it is chosen for a matrix, before anything is laid out."""

    order: RowOrder | None
    """None keeps A's order."""
    counts: BucketCounts
    costs: NDArray[np.float64]
    """(partitions, POWERS) costs from `spmark.impls.liteform.search.table_of`."""
    widths: Widths

    @property
    def max_widths(self) -> list[int]:
        """Width of the widest bucket of each partition."""
        return [1 << int(power) for power in self.widths.powers]

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the plan's config."""
        return {
            "partitions": self.counts.partitions,
            "max_widths": run_lengths(self.max_widths),
            "max_width": max(self.max_widths),
            "cost": self.widths.cost,
            "order": BucketOrder.GATHERED.value if self.order else BucketOrder.GIVEN.value,
        }

    def copy_s(self, problem: Problem, device: DeviceSpec) -> float:
        """Give the time of a copy of as many bytes as the cost counts loads and stores of elements."""
        return self.widths.cost * problem.dtype.itemsize / device.copy_bytes_per_s

    @property
    def record(self) -> Search:
        """The cost of every cap, the same cap for all partitions, for replay and for figure 11."""
        seen = [
            Candidate(
                {"partitions": self.counts.partitions, "max_width": 1 << power},
                capped(self.costs, self.counts, power),
            )
            for power in range(int(self.counts.widest.max(initial=0)) + 1)
        ]
        return Search(self.widths.evaluated, seen=tuple(seen))


def run_lengths(values: list[int]) -> str:
    """Write a list of numbers with repeats counted: ``32x5,16`` for five of 32 and one of 16."""
    parts: list[tuple[int, int]] = []
    for value in values:
        if parts and parts[-1][0] == value:
            parts[-1] = value, parts[-1][1] + 1
        else:
            parts.append((value, 1))
    return ",".join(f"{value}x{times}" if times > 1 else str(value) for value, times in parts)


def expanded(text: str, most: int) -> list[int]:
    """Give the list that `run_lengths` wrote.

    Raises
    ------
    ValueError
        The text has another form, or would give more than ``most`` numbers.
    """
    pairs = [(int(number), int(times or 1)) for number, _, times in (part.partition("x") for part in text.split(","))]
    if sum(times for _, times in pairs) > most or min(times for _, times in pairs) < 1:
        raise ValueError(f"expected 1 to {most} numbers, found {text[:100]}")
    return [value for value, times in pairs for _ in range(times)]
