"""Pruned networks by name: their layers, and the cut of one matrix into the layers' weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from spmark.impls.core.problem import Csr
from spmark.impls.core.pruned import PrunedLayer, PrunedNetwork


def weights(network: PrunedNetwork) -> int:
    return sum(np.prod(layer.shape, dtype=np.int64) for layer in network.layers)


def test_networks_have_the_published_layers() -> None:
    bert, resnet = PrunedNetwork.of("bert_12x768@0.91"), PrunedNetwork.of("resnet50@0.9")
    assert len(bert.layers) == 48
    assert weights(bert) == 12 * 12 * 768**2
    assert len(resnet.layers) == 52
    # torchvision's resnet50 has 23,454,912 weights of convolutions, 9,408 of them in the first.
    assert weights(resnet) == 23_454_912 - 9_408
    assert resnet.layers[10:14] == (
        PrunedLayer(128, 256), PrunedLayer(128, 128, 3, 2), PrunedLayer(512, 128), PrunedLayer(512, 256, 1, 2)
    )  # fmt: skip


@pytest.mark.parametrize("name", ["bert_0x768@0.9", "bert_12x700@0.9", "resnet18@0.9", "resnet50", "bert_12x768@1.0"])
def test_other_names_are_none(name: str) -> None:
    assert PrunedNetwork.of(name) is None


def test_a_matrix_is_cut_into_the_layers_weights() -> None:
    network, rng = PrunedNetwork.of("bert_1x64@0.5"), np.random.default_rng(2)
    dense = [rng.standard_normal(layer.shape) * (rng.random(layer.shape) < 0.1) for layer in network.layers]
    parts = network.parts(Csr.of(sparse.block_diag(dense, "csr")))
    for part, expected in zip(parts, dense, strict=True):
        found = sparse.csr_array((part.values, part.indices, part.indptr), part.shape).toarray()
        np.testing.assert_array_equal(found, expected.astype(np.float32))
