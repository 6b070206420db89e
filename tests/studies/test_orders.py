"""Kendall's tau of two orders."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.studies.orders import kendall


def test_tau_counts_pairs():
    # Of six pairs, (2, 3) alone is in another order.
    assert kendall(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 5, 4])) == pytest.approx(4 / 6)


@pytest.mark.parametrize("left", [[], [1.0], [2.0, 2.0]])
def test_what_has_no_order_has_no_tau(left):
    assert np.isnan(kendall(np.array(left), np.arange(len(left), dtype=float)))
