"""Gains by hand: what is chosen by one half of the samples is valued by the other."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.studies.dash.judging import Gain, Halves, excess, overall

pytestmark = pytest.mark.full

HALVES = Halves(np.array([4.0, 2.0, 1.0, 1.1]), np.array([4.4, 2.0, 1.6, 1.0]), default=0)


def test_the_second_half_values_what_the_first_half_chose():
    found = HALVES.judge(np.array([3.0, 1.0, 4.0, 2.0]), count=2)
    # Configs 1 and 3 come first, and 3 is chosen by 1.1 s. The optimum is config 2 by 1.0 s, whose value is 1.6 s.
    assert found.speedup == pytest.approx(4.4 / 1.0)
    assert found.optimum == pytest.approx(4.4 / 1.6)
    assert found.share == pytest.approx(1.6)


@pytest.mark.parametrize(("count", "chosen_s"), [(1, 2.0), (2, 2.0), (3, 1.6), (9, 1.6)])
def test_more_choices_are_chosen_by_time_and_ties_by_order(count, chosen_s):
    found = HALVES.judge(np.array([1.0, 0.0, 1.0, 2.0]), count)
    assert found.speedup == pytest.approx(4.4 / chosen_s)


def test_means_over_matrices():
    gains = [Gain(2.0, 4.0), Gain(8.0, 9.0)]
    assert overall(gains).speedup == pytest.approx(4)
    assert overall(gains).optimum == pytest.approx(6)
    assert excess(gains) == pytest.approx((100 + 12.5) / 2)
    assert np.isnan([excess([]), overall([]).speedup]).all()
