"""Kernels that no implementation lists among its own: several use them, or the public API alone."""

from __future__ import annotations

from spmark.impls.kernels.hyb_convert import FILL_ELL_BUCKETS
from spmark.impls.kernels.plain import SDDMM_PLAIN, SPMM_PLAIN
from spmark.impls.kernels.zeroing import ZERO_ROWS

SHARED = (ZERO_ROWS, FILL_ELL_BUCKETS, SPMM_PLAIN, SDDMM_PLAIN)
"""Their templates, in no order."""
