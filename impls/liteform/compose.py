"""Composing: which format, how many column partitions and how wide their buckets, without running anything.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 5 and figure 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from spmark.impls.core.problem import Csr, DType
from spmark.impls.formats.limits import MAX_STORED
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.predictor import Predictor

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
    the problem's dtype. The matrix unit computes blocks, in float16 only.
    """
    if dtype is not DType.FLOAT16:
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
