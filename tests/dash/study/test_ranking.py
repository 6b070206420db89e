"""The ranking loss and the ordered pair accuracy by hand; no order of samples changes them."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.dash.study.ranking import Pairs, ranking_loss

pytestmark = pytest.mark.full

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")


def loss_of(scores, seconds, noise=0.0, margin=1.0):
    pairs = Pairs.of(np.asarray(seconds, float), noise)
    slower, faster = torch.from_numpy(pairs.slower), torch.from_numpy(pairs.faster)
    return float(ranking_loss(torch.tensor(scores, dtype=torch.float64), slower, faster, margin))


def test_the_loss_by_hand():
    # Pairs of (slower, faster): (1, 0) by 3 is no loss, (2, 0) by 0.5 is a loss of 0.5, (2, 1) by -2.5 one of 3.5.
    assert loss_of([0.0, 3.0, 0.5], [1.0, 2.0, 3.0]) == pytest.approx((0 + 0.5 + 3.5) / 3)
    assert loss_of([0.0, 3.0, 0.5], [1.0, 2.0, 3.0], margin=3) == pytest.approx((0 + 2.5 + 5.5) / 3)


def test_the_loss_is_the_mean_of_pytorch_s():
    rng = np.random.default_rng(1)
    scores, seconds = rng.normal(size=20), rng.random(20)
    left, right = np.triu_indices(20, 1)
    signs = torch.from_numpy(np.sign(seconds[left] - seconds[right]))
    given = torch.from_numpy(scores)
    expected = torch.nn.MarginRankingLoss(margin=1)(given[left], given[right], signs)
    assert loss_of(scores.tolist(), seconds) == pytest.approx(float(expected))


def test_pairs_within_noise_are_left_out():
    pairs = Pairs.of(np.array([1.0, 1.02, 1.1, 1.0]), 0.05)
    assert sorted(zip(pairs.slower.tolist(), pairs.faster.tolist(), strict=True)) == [(2, 0), (2, 1), (2, 3)]
    assert not Pairs.of(np.array([1.0, 1.0]), 0.0).slower.size


def test_no_pair_is_no_loss_and_has_a_gradient_of_zero():
    scores = torch.ones(3, requires_grad=True)
    none = torch.zeros(0, dtype=torch.int64)
    loss = ranking_loss(scores, none, none, 1.0)
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()


def test_the_order_of_samples_changes_nothing():
    rng = np.random.default_rng(2)
    scores, seconds, order = rng.normal(size=30), rng.random(30), rng.permutation(30)
    assert loss_of(scores[order].tolist(), seconds[order], 0.1) == pytest.approx(
        loss_of(scores.tolist(), seconds, 0.1), rel=1e-12
    )
    shares = [Pairs.of(seconds[o], 0.1).share_in_order(scores[o]) for o in (np.arange(30), order)]
    assert shares[0] == shares[1]


def test_the_share_in_order_by_hand():
    pairs = Pairs.of(np.array([1.0, 2.0, 3.0]), 0.0)
    assert pairs.share_in_order(np.array([1.0, 2.0, 3.0])) == 1
    assert pairs.share_in_order(np.array([1.0, 3.0, 2.0])) == pytest.approx(2 / 3)
    assert pairs.share_in_order(np.zeros(3)) == 0, "equal scores order nothing"
    assert np.isnan(Pairs.of(np.ones(2), 0.0).share_in_order(np.zeros(2)))
