"""LO-SpMM's cost models give configs the scores that its searches prune and rank by."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.estimate import estimate
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.rank import SHIPPED, features_of, find
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.table import cost_model

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
PROBLEM = Problem(Op.SPMM, random_csr(300, 120, np.random.default_rng(7).binomial(120, 0.15, 300).tolist()), 512)
SIZES = [TileSize(8, 64), TileSize(32, 128, 2), TileSize(16, 32, 1, 3), TileSize(16, 64, 4, 1, 2)]
CONFIGS = [asdict(size) for size in SIZES]


def test_the_estimate_is_that_of_the_search() -> None:
    space = explore(PROBLEM, H200, Pins(prefetch=4, split=1, order=Reordering.NONE))
    scores = cost_model(LoSpmm(order="none", prefetch=4), "estimate", H200).score(PROBLEM, CONFIGS)
    assert scores.tolist() == [estimate(space, size) for size in SIZES]
    assert np.unique(scores).size == len(SIZES)


def test_a_config_from_before_columns_were_cut_has_one_part() -> None:
    model = cost_model(LoSpmm(), "estimate", H200)
    old, new = {"tile_rows": 8, "threads": 64, "cpt": 1, "tiles_per_block": 1}, asdict(TileSize(8, 64))
    assert np.diff(model.score(PROBLEM, [old, new])).tolist() == [0]


def test_ranks_are_those_of_the_shipped_trees() -> None:
    space = explore(PROBLEM, H200, Pins(split=1))
    scores = cost_model(LoSpmm(), "rank", H200).score(PROBLEM, CONFIGS)
    assert scores.tolist() == find(SHIPPED).trees.score(features_of(space, SIZES)).tolist()
