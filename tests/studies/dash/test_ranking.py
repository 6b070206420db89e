"""The ranking loss and the ordered pair accuracy by hand; no order of samples changes them."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.studies.dash.steps import ranking_loss
from spmark.studies.orders import share_in_order

pytestmark = pytest.mark.full

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")


def loss_of(scores, seconds, noise=0.0, margin=1.0):
    given = (torch.tensor(one, dtype=torch.float64) for one in (scores, np.asarray(seconds, float)))
    return float(ranking_loss(*given, noise, margin))


def test_the_loss_is_the_mean_of_pytorch_s():
    rng = np.random.default_rng(1)
    scores, seconds = rng.normal(size=20), rng.random(20)
    left, right = np.triu_indices(20, 1)
    signs = torch.from_numpy(np.sign(seconds[left] - seconds[right]))
    given = torch.from_numpy(scores)
    expected = torch.nn.MarginRankingLoss(margin=1)(given[left], given[right], signs)
    assert loss_of(scores.tolist(), seconds) == pytest.approx(float(expected))


def test_pairs_within_noise_are_left_out():
    seconds = np.array([1.0, 1.02, 1.1, 1.0])
    assert share_in_order(np.array([3.0, 1.0, 2.0, 1.0]), seconds, 0.05) == pytest.approx(2 / 3), "config 2 has pairs"
    assert share_in_order(np.array([3.0, 1.0, 2.0, 1.0]), seconds, 0.0) == pytest.approx(2 / 5)


def test_the_share_in_order_by_hand():
    seconds = np.array([1.0, 2.0, 3.0])
    assert share_in_order(seconds, seconds, 0.0) == 1
    assert share_in_order(np.array([1.0, 3.0, 2.0]), seconds, 0.0) == pytest.approx(2 / 3)
    assert share_in_order(np.zeros(3), seconds, 0.0) == 0, "equal scores order nothing"
    assert np.isnan(share_in_order(np.zeros(2), np.ones(2), 0.0))
