"""The search of SDDMM over runs on made-up times: the tile, then the run."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr
from races import made_up_race

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.sddmm import RUNS_SDDMM, run_tiles
from spmark.impls.tuning.runs import search_runs
from spmark.impls.tuning.space import Config
from spmark.impls.tuning.tune import space_of


@pytest.mark.parametrize("best_run", [2, 4, 32])
@pytest.mark.parametrize("nnz_of_row", [5, 2000])
def test_the_tile_is_found_then_its_run(nnz_of_row: int, best_run: int) -> None:
    problem = Problem(Op.SDDMM, random_csr(64, 2001, [nnz_of_row] * 64), 128)
    batch = min(best_run, 4)
    best = {"vector": 4, "vectors": 4, "lanes": 8, "batch": batch, "parts": 1, "early": False}
    best |= {"run": best_run, "form": 3}

    def cost(config: Config) -> float:
        away = abs(np.log2(config["run"]) - np.log2(best_run))
        return float(10.0 + away + sum(config[key] != value for key, value in best.items() if key != "run"))

    race, timer = made_up_race(cost)
    search_runs(problem, race, {"form": 3})
    assert race.finish()[0] == best
    tiles = run_tiles(128, DType.FLOAT32)
    starts = {one["run"] for one in timer.asked[: len(tiles)]}
    assert starts == ({8} if nnz_of_row == 2000 else {4}), "small problems begin with more groups"
    assert len(timer.asked) <= len(tiles) + 8, "two tiles' runs"
    space = space_of(RUNS_SDDMM, problem)
    assert all({name: value for name, value in one.items() if name != "form"} in space for one in timer.asked)
