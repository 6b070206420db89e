"""The softmax of rows: every instance on the host."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType
from spmark.impls.kernels.row_softmax import SOFTMAX_ROWS, SOFTMAX_ROWS_GRADIENT, softmax_rows
from spmark.impls.runtime.template import C_TYPES, Instance

target = table_target(SOFTMAX_ROWS, SOFTMAX_ROWS_GRADIENT)


def check(indptr: np.ndarray, dtype: DType, target: TableTarget) -> None:
    """Hold both kernels against float64, on scores far apart of which some are no part of their row."""
    rng, rows = np.random.default_rng(5), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    scores = dtype.stored(rng.normal(0, 30, rows.size).astype(np.float32))
    scores[1::7] = dtype.stored(np.float32([-np.inf]))[0]
    grad, shares, found = dtype.stored(rng.normal(size=rows.size).astype(np.float32)), scores.copy(), scores.copy()
    shares.fill(dtype.nan)
    found.fill(dtype.nan)
    wide, along = (dtype.numbers(one).astype(np.float64) for one in (scores, grad))
    most = np.full(len(indptr) - 1, -np.inf)
    np.maximum.at(most, rows, wide)
    kept = np.isfinite(most)[rows]  # a row without a finite score has no softmax
    raised = np.where(kept, np.exp(wide - np.where(kept, most[rows], 0)), np.nan)
    expected = raised / np.bincount(rows, raised, len(most))[rows]
    softmax_rows(target, dtype, indptr, (scores, shares))
    rounding = 2.0 ** (3 - dtype.digits)
    apart = 256 * 2.0**-24  # differences of scores are up to 256, and rounded to float32
    np.testing.assert_allclose(dtype.numbers(shares), expected, rtol=rounding + apart, atol=max(dtype.least, 1e-30))
    share = dtype.numbers(shares).astype(np.float64)
    wanted = share * (along - np.bincount(rows, share * along, len(most))[rows])
    softmax_rows(target, dtype, indptr, (shares, grad, found))
    np.testing.assert_allclose(dtype.numbers(found), wanted, rtol=rounding, atol=rounding * 4)


@every_instance(SOFTMAX_ROWS)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    """Rows without elements, of one, of a warp, of several turns."""
    dtype = next(one for one, name in C_TYPES.items() if name == instance.values["T"])
    check(np.cumsum([0, 0, 1, 32, 33, 0, 300, 7, 64, 130], dtype=np.int32), dtype, target)


@pytest.mark.parametrize("name", matrices())
def test_tiny_matrices(name: str, target: TableTarget) -> None:
    check(matrices()[name].indptr, DType.FLOAT32, target)
