"""What tests of STile's search share: the published A100's prices, some with windows of two heights, and a search."""

from __future__ import annotations

from dataclasses import replace

from spmark.impls.core.problem import Csr, DType, Op
from spmark.impls.stile.calibration import BlockCost, Calibration, published_a100
from spmark.impls.stile.search import Tiling, forms_of
from spmark.impls.stile.space import Rules

SPMM = Calibration.of(published_a100(), Op.SPMM, DType.FLOAT16)
SDDMM = Calibration.of(published_a100(), Op.SDDMM, DType.FLOAT16)
TWO_HEIGHTS = replace(
    SPMM,
    blocks=SPMM.blocks
    + tuple(BlockCost(8, b.cols, b.part, 0.65 * b.plain_ms, 0.65 * b.atomic_ms) for b in SPMM.blocks),
)
"""Windows of 8 rows are not in the published table; what they cost here is made up, to be searched at all."""


def search(matrix: Csr, calibration: Calibration, width: int, rules: Rules | None = None) -> Tiling:
    """Give the tiles that are predicted fastest."""
    return forms_of(matrix, [(rules or Rules(), 0)], calibration, width)[0]
