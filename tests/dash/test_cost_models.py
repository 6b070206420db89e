"""Scores of configs by a model: what the network computes, one at a time or many at once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dash_fakes import CPU, CPU_OWN, CPU_SPACE, common_cpu, problem_of, samples_of

from spmark.impls.dash.cost_models import DashScores
from spmark.impls.dash.encoders import EncoderKind, fit
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.weights import ModelCard, TrainedModel

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
CONFIGS = list(CPU_SPACE.configs())


@pytest.fixture(scope="module")
def scores() -> DashScores:
    spec = NetworkSpec(encoder=EncoderKind.PCA)
    card = ModelCard(subject=CPU, spec=spec, trained_on=(), seed=0)
    model = TrainedModel(card, Network(spec, 3), fit(EncoderKind.PCA, CPU_OWN.every()))
    return DashScores(model, SimpleNamespace(common=common_cpu, own=dict), CPU_OWN)


def test_scores_are_the_network_s(scores):
    (one,) = samples_of(CPU, [5], CONFIGS).matrices
    network, encoder = Network(NetworkSpec(encoder=EncoderKind.PCA), 3), fit(EncoderKind.PCA, CPU_OWN.every())
    with torch.no_grad():
        configs = network.embed_configs(torch.from_numpy(one.common), torch.from_numpy(encoder.encode(one.own)))
        expected = network.rank(network.embed(Pattern.of(one.sites, one.sizes)), configs).numpy()
    found = scores.score(problem_of(5), CONFIGS)
    assert (found.dtype, found.shape) == (np.float64, (len(CONFIGS),))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_config_has_one_score_alone_and_among_others(scores):
    together = scores.score(problem_of(5), CONFIGS)
    alone = [scores.score(problem_of(5), [{**config, "unknown": 1}])[0] for config in CONFIGS[:3]]
    np.testing.assert_allclose(alone, together[:3], rtol=1e-5)
    assert scores.score(problem_of(5), []).shape == (0,)


def test_a_config_of_another_platform_has_no_score(scores):
    found = scores.score(problem_of(5), [CONFIGS[0] | {"chunk": 3}, CONFIGS[0], {}])
    assert np.isnan(found).tolist() == [True, False, True]
