"""Predictors: the sizes of the paper's table, what they read, and which parts fit together."""

from __future__ import annotations

import pytest

from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.predictor import PredictorKind
from spmark.impls.dash.withtorch import seeded

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")


def inputs(count: int = 5, latent: int = 64):
    with seeded(7):
        return torch.randn(128), torch.randn(count, 53), torch.randn(count, latent)


@pytest.mark.parametrize("kind", PredictorKind)
def test_a_config_s_score_depends_on_itself_and_on_the_matrix(kind):
    network = Network(NetworkSpec(predictor=kind), 1)
    matrix, common, latent = inputs()
    with torch.no_grad():
        configs = network.embed_configs(common, latent)
        scores = network.rank(matrix, configs)
        turned = network.rank(matrix, configs.flip(0)).flip(0)
        alone = network.rank(matrix, configs[2:3])
    assert scores.shape == (5,)
    assert len(set(scores.tolist())) == 5
    torch.testing.assert_close(turned, scores)
    torch.testing.assert_close(alone, scores[2:3])
    with torch.no_grad():
        assert not torch.equal(network.rank(-matrix, configs), scores)


def test_a_seed_decides_the_bits_of_new_weights_and_of_nothing_else():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, other, third = (Network(NetworkSpec(), seed).tensors() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected), "random numbers outside go on as if nothing had happened"
    assert all((one[name] == other[name]).all() for name in one)
    assert any((one[name] != third[name]).any() for name in one)


def test_weights_of_another_network_are_refused():
    other = Network(NetworkSpec(predictor=PredictorKind.MLP192)).tensors()
    with pytest.raises(ValueError, match="expected the weights of NetworkSpec"):
        Network(NetworkSpec()).take(other)
