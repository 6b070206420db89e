"""What composing chooses without running anything: the format, the column partitions, the order of rows, the widths.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 5 and figure 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Csr, DType
from spmark.impls.formats.limits import MAX_STORED
from spmark.impls.formats.nearness import RowOrder
from spmark.impls.liteform.cost import BucketCounts, capped
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.predictor import Predictor
from spmark.impls.liteform.search import Widths

BLOCK = 32
"""Rows and columns of a block of BSR, as in the paper's fixed format."""
_SAMPLED = 256
_INDEX_BYTES = 4


class StoredAs(StrEnum):
    """Formats that are chosen among; all compute in the problem's dtype."""

    AUTO = "auto"
    CELL = "cell"
    CSR = "csr"
    BSR = "bsr"


@dataclass(frozen=True)
class Choice:
    """The predictors' answer, or the reason why they were not asked."""

    form: StoredAs
    """CELL, or CSR for whichever fixed format."""
    partitions: int
    fallback: str = ""
    """Which feature is outside of the models' training range; empty where the models chose."""


def choose(features: Features, width: int, predictor: Predictor, form: StoredAs, partitions: int) -> Choice:
    """Ask the predictors for the format and the number of partitions, unless they are pinned.

    Where a feature is outside of the training range, nothing is extrapolated. The choice is then CELL in one partition,
    the commonest label of both predictors.

    Parameters
    ----------
    features : Features
    width : int
        J.
    predictor : Predictor
    form : StoredAs
        `StoredAs.AUTO` to have it predicted.
    partitions : int
        0 to have them predicted.
    """
    if form in (StoredAs.CSR, StoredAs.BSR) or (form is StoredAs.CELL and partitions):
        return Choice(form, max(partitions, 1))
    outside = predictor.outside(features, width)
    if outside:
        return Choice(StoredAs.CELL, max(partitions, 1), fallback=outside)
    if form is StoredAs.AUTO and not predictor.pays(features, width):
        return Choice(StoredAs.CSR, 1)
    predicted = partitions or predictor.partitions.predict(features.partitions(width))
    return Choice(StoredAs.CELL, min(predicted, features.num_cols))


def fixed_form(matrix: Csr, dtype: DType) -> StoredAs:
    """Choose between the fixed formats: BSR where its blocks take fewer bytes than CSR's non-zeros and indices.

    The public code takes BSR in float16 wherever it fits into memory, and CSR in float32 otherwise. Here both are in
    the problem's dtype. The matrix unit computes blocks, in 16 bits only.
    """
    if not dtype.narrow:
        return StoredAs.CSR
    stored = estimated_blocks(matrix) * BLOCK * BLOCK
    smaller = stored * dtype.itemsize <= matrix.nnz * (dtype.itemsize + _INDEX_BYTES)
    return StoredAs.BSR if matrix.nnz and smaller and stored <= MAX_STORED else StoredAs.CSR


def estimated_blocks(matrix: Csr) -> int:
    """Count the non-empty blocks of BSR; beyond 256 block rows, estimate the count from 256 evenly spread ones."""
    block_rows = -(-matrix.num_rows // BLOCK)
    chosen = np.unique(np.linspace(0, block_rows - 1, min(block_rows, _SAMPLED)).astype(np.int64))
    filled = 0
    for block_row in chosen:
        span = slice(matrix.indptr[block_row * BLOCK], matrix.indptr[min((block_row + 1) * BLOCK, matrix.num_rows)])
        filled += np.unique(matrix.indices[span] // BLOCK).size
    return -(-filled * block_rows // chosen.size)


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
    """(partitions, POWERS), of `spmark.impls.liteform.cost.costs` or `weighed`."""
    widths: Widths
    thirds: bool
    """Whether buckets have widths between the powers of two."""

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
            **({"thirds": True} if self.thirds else {}),
        }

    @property
    def record(self) -> Search:
        """The cost of every cap, the same cap for all partitions, for replay and for figure 11."""
        counts, powers = self.counts, range(int(self.counts.widest.max(initial=0)) + 1)
        configs = [{"partitions": counts.partitions, "max_width": 1 << power} for power in powers]
        costs = [capped(self.costs, counts, power) for power in powers]
        return Search(self.widths.evaluated, seen=tuple(map(Candidate, configs, costs)))


def run_lengths(values: list[int]) -> str:
    """Write a list of numbers with repeats counted: ``32x5,16`` for five of 32 and one of 16."""
    runs = [(value, len(list(run))) for value, run in groupby(values)]
    return ",".join(f"{value}x{times}" if times > 1 else str(value) for value, times in runs)


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
