"""What scores configs: what each one knows, and that none looks at a time of the matrix that it scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dash_fakes import CPU, TILE_SPACE, TILES, samples_of

from spmark.studies.dash.rankers import best_on_target, by_trees, random_configs
from spmark.studies.dash.samples import SampleSet
from spmark.studies.orders import kendall

pytestmark = pytest.mark.full

CONFIGS = list(TILE_SPACE.configs())
TRAINED = samples_of(TILES, range(5), CONFIGS)
HELD = samples_of(TILES, [41], CONFIGS).matrices[0]


def test_random_configs_are_a_permutation_that_seed_and_matrix_decide():
    found = random_configs(1)(HELD)
    assert sorted(found) == list(range(len(CONFIGS)))
    np.testing.assert_array_equal(found, random_configs(1)(HELD))
    assert not np.array_equal(found, random_configs(2)(HELD))
    assert not np.array_equal(found, random_configs(1)(replace(HELD, matrix="made/other")))


def test_the_best_on_the_target_is_by_a_mean_of_logarithms_and_else_by_the_nearest():
    few = SampleSet(
        TILES,
        tuple(
            replace(one, seconds=one.seconds[:3], common=one.common[:3], own=one.own[:3])
            for one in TRAINED.matrices[:2]
        ),
    )
    few.matrices[0].seconds[:] = 1.0, 2.0, 4.0
    few.matrices[1].seconds[:] = 3.0, 1.0, 1.0
    means = np.log([3, 2, 4]) / 2
    found = best_on_target(few)(HELD)
    assert sorted(found) == list(range(len(CONFIGS)))
    numbers = np.concatenate([HELD.common, HELD.own], axis=1).astype(np.float64)
    distances = np.linalg.norm(numbers[:, None] - numbers[None, :3], axis=2)
    keys = [(means[one.argmin()], round(one.min(), 6)) for one in distances]
    assert [keys[config] for config in np.argsort(found)] == sorted(keys)
    assert found[1] == 0, "a config that was measured stands before those that are only near it"


@pytest.mark.parametrize("with_source", [False, True])
def test_lightgbm_learns_the_order(with_source):
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra train)")
    source = samples_of(CPU, range(8)) if with_source else None
    ranker = by_trees(TRAINED, source)
    found = ranker(HELD)
    assert kendall(found, HELD.seconds) > 0.5
    np.testing.assert_array_equal(found, by_trees(TRAINED, source)(HELD))
    np.testing.assert_array_equal(found, ranker(replace(HELD, seconds=HELD.seconds[::-1])))
