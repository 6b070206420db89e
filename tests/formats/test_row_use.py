"""Which rows several pieces share: those that a slow count finds, and those that buckets say of themselves."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import numpy as np
from formats.test_roundtrip import csrs
from hypothesis import given
from hypothesis import strategies as st

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.row_use import row_use

import_module("spmark.impls.formats.loops")  # compiled before hypothesis looks at the clock


@given(csrs(), st.integers(1, 5), st.sampled_from([1, 4, 16, 64]), st.booleans())
def test_shared_rows_are_those_of_several_pieces(matrix: Csr, partitions: int, max_width: int, more: bool) -> None:
    held = HybFormat.from_csr(matrix, min(partitions, matrix.num_cols), max_width)
    parts = [held.rows[held.rows >= 0]]
    if more:  # another format beside it has a piece of every third row
        parts.append(np.arange(0, matrix.num_rows, 3, dtype=np.int32))
    pieces = Counter(row for part in parts for row in part.tolist())
    use = row_use(matrix.num_rows, parts)
    assert use.shared.tolist() == [row for row in range(matrix.num_rows) if pieces[row] > 1]
    assert use.empty.tolist() == [row for row in range(matrix.num_rows) if not pieces[row]]
    if not more:  # what a kernel is told bucket by bucket is what the zeroing is told
        for bucket in held.buckets:
            rows = held.rows[bucket.first : bucket.first + bucket.count]
            assert np.all(np.isin(rows[rows >= 0], use.shared) == bucket.shared)
