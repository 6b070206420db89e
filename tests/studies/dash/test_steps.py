"""Steps and looks: measures agree with those of single matrices, and nothing that fills a batch up is learnt from."""

from __future__ import annotations

import numpy as np
import pytest
from dash_fakes import TILE_OWN, TILES, samples_of

from spmark.impls.dash.encoders import EncoderKind, fit
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.studies.dash.steps import Configs, Replayed
from spmark.studies.orders import kendall, share_in_order

pytestmark = pytest.mark.full

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")

NOISE = 0.05
FEW, MANY = samples_of(TILES, [1], count=5).matrices, samples_of(TILES, [2, 3], count=17).matrices


def configs_of(network: Network, matrices=(*FEW, *MANY)) -> Configs:
    encoder = fit(EncoderKind.PCA, TILE_OWN.every())
    return Configs(network, encoder, matrices, None, noise=NOISE, margin=1.0)


def test_measures_are_those_of_each_matrix():
    configs, rng = configs_of(Network(NetworkSpec())), np.random.default_rng(0)
    scores = [rng.integers(0, 9, len(one.seconds)) / 8 for one in (*FEW, *MANY)]
    given = torch.tensor(np.stack([np.pad(one, (0, 18 - one.size), constant_values=3) for one in scores]))
    found = configs.measures(given.flatten())
    for row, one, own in zip(found, (*FEW, *MANY), scores, strict=True):
        slower, faster = np.nonzero(one.seconds[:, None] > (1 + NOISE) * one.seconds)
        short = np.maximum(0, 1 - (own[slower] - own[faster])).mean()
        in_order = share_in_order(own, one.seconds, NOISE)
        assert row == pytest.approx([short, in_order, kendall(own, one.seconds)], rel=1e-6)


def test_a_matrix_of_equal_times_has_no_measure_and_takes_no_step():
    flat = tuple(one.__class__(**{**vars(one), "seconds": np.ones(5)}) for one in FEW)
    network = Network(NetworkSpec())
    configs = configs_of(network, flat)
    before = network.tensors()
    configs.steps(torch.optim.Adam(network.parameters()), [(0, np.arange(5))], 5)
    assert all(np.array_equal(array, before[name]) for name, array in network.tensors().items())
    assert np.isnan(configs.measures(configs.look())).all()


def test_what_fills_a_batch_up_changes_no_step():
    weights = []
    for size in (7, 12):
        network = Network(NetworkSpec())
        configs = configs_of(network)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        configs.steps(optimizer, [(1, np.arange(7)), (0, np.array([4, 0, 2]))], size)
        weights.append(network.tensors())
    for name, array in weights[0].items():
        np.testing.assert_allclose(array, weights[1][name], rtol=1e-4, atol=1e-6)
    assert any(not np.array_equal(array, Network(NetworkSpec()).tensors()[name]) for name, array in weights[0].items())


@pytest.mark.gpu
def test_replayed_steps_are_those_that_are_taken_as_they_are(monkeypatch):
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    weights = []
    for is_replayed in (False, True):
        network = Network(NetworkSpec(), device="cuda")
        configs = configs_of(network)
        if not is_replayed:
            monkeypatch.setattr(Replayed, "_recorded", lambda self, work: None)
        optimizer = torch.optim.Adam(network.parameters(), capturable=True)
        parts = [(matrix, np.arange(5)) for matrix in (0, 1, 2, 1, 0, 2, 2)]
        configs.steps(optimizer, parts, 5)
        weights.append((network.tensors(), configs.look()))
        monkeypatch.undo()
    for name, array in weights[0][0].items():
        np.testing.assert_allclose(array, weights[1][0][name], rtol=1e-3, atol=1e-4)
    assert torch.allclose(weights[0][1], weights[1][1], rtol=1e-3, atol=1e-3)
