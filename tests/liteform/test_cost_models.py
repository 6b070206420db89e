"""LiteForm's cost and its forests as cost models of configs."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.liteform.predictor import SHIPPED, find
from spmark.impls.runtime.device import find as find_device
from spmark.impls.table import cost_model

RNG = np.random.default_rng(5)
DEVICE = find_device("host-simt")


@pytest.mark.parametrize("config", [{}, {"cost": "paper"}, {"order": "gathered"}, {"thirds": True}])
def test_the_cost_is_what_a_build_tells(config: dict[str, object]) -> None:
    """A plan on the host is built with the paper's cost; it says what every cap would have cost."""
    problem = Problem(Op.SPMM, random_csr(90, 130, RNG.integers(0, 60, 90).tolist()), 32)
    how = LiteForm(format="cell", partitions=2, **config)  # type: ignore[arg-type]
    search = how.build(problem, DEVICE).search
    assert search is not None
    told = {candidate.config["max_width"]: candidate.predicted for candidate in search.seen}
    scores = cost_model(how, "cost", DEVICE).score(problem, [candidate.config for candidate in search.seen])
    assert scores.tolist() == list(told.values())


def inside() -> Csr:
    """Give a matrix inside the training range of the shipped model."""
    return random_csr(4000, 4000, np.random.default_rng(1).integers(1, 40, 4000).tolist())


def test_votes_are_shared_among_formats_and_partitions() -> None:
    problem, predictor = Problem(Op.SPMM, inside(), 128), find(SHIPPED)
    features = Features.of(problem.matrix)
    assert not predictor.outside(features, 128)
    classes = predictor.partitions.classes.tolist()
    cells = [{"partitions": partitions, "max_width": 8} for partitions in classes]
    scores = cost_model(LiteForm(), "forests", DEVICE).score(problem, [*cells, {"format": "csr"}, {"partitions": 77}])
    assert scores[: len(cells) + 1].sum() == pytest.approx(-1)
    assert (scores[len(cells)] <= -0.5) == (not predictor.pays(features, 128))
    assert classes[int(np.argmin(scores[: len(cells)]))] == predictor.partitions.predict(features.partitions(128))
    assert scores[-1] == 0
