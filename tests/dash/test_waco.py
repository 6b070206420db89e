"""WACO's graph and walk, and the ways in which its network meets other platforms."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.dash.waco import NeighbourGraph, Transfer, slot_numbers, waco_encoder, waco_spec

POINTS = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)


def test_links_are_the_nearest_both_ways_and_the_ring():
    graph = NeighbourGraph.of(POINTS, links=4, seed=1)
    distances = np.linalg.norm(POINTS[:, None].astype(float) - POINTS[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :4]
    for config, links in enumerate(graph.links):
        assert set(nearest[config]) <= set(links.tolist())
        wanted = set(nearest[config]) | set(np.flatnonzero((nearest == config).any(1)))
        assert len(set(links.tolist()) - wanted) <= 2, "beside these, the two neighbours on the ring"
        assert config not in links
        assert all(config in graph.links[other] for other in links)


def cost_of(points: np.ndarray):
    centre = np.full(points.shape[1], 0.5)
    return np.square(points - centre).sum(1).astype(np.float64)


def test_a_walk_finds_the_best_without_asking_for_all():
    costs = cost_of(POINTS)
    found, asked = NeighbourGraph.of(POINTS, links=8).walk(lambda which: costs[which], count=5, beam=20)
    np.testing.assert_array_equal(found, np.argsort(costs)[:5])
    assert 5 < asked < 250


@pytest.mark.parametrize(("transfer", "slots"), [(Transfer.MAPPED, (3, 2)), (Transfer.AUGMENTED, (56, 55))])
def test_slots_hold_what_the_way_of_transfer_does_not_share(transfer, slots):
    spec, found = waco_spec(transfer, {"cpu": 3, "tiles": 2})
    assert found == {"cpu": slots[0], "tiles": slots[1]}
    assert spec.latent == sum(slots)
    assert spec.mapped == (transfer is Transfer.MAPPED)
    common, own = np.ones((4, 53), np.float32), np.full((4, 2), 2, np.float32)
    latent = waco_encoder(transfer, "tiles", found).encode(slot_numbers(transfer, common, own))
    assert latent.shape == (4, spec.latent)
    assert not latent[:, : slots[0]].any()
    np.testing.assert_array_equal(latent[:, -2:], own)
    assert (latent == 1).sum() == (0 if spec.mapped else 4 * 53)
