"""Ranges of rows for one task each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spmark.impls.core.problem import offsets
from spmark.impls.formats.threads import equal_shares


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 9))
def test_shares_cover_the_rows_and_have_equal_costs(lengths: list[int], tasks: int) -> None:
    bounds = equal_shares(offsets(np.array(lengths), np.int32), tasks)
    assert (bounds.dtype, bounds[0], bounds[-1]) == (np.int64, 0, len(lengths))
    assert bounds.size <= tasks + 1
    assert (np.diff(bounds) > 0).all()
    share = (sum(lengths) + len(lengths)) / tasks
    for start, stop in pairwise(bounds):
        assert sum(lengths[start:stop]) + stop - start <= share + max(lengths) + 1
