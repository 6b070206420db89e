"""The searches on made-up times: they find the best of an axis, start where they should, and keep to what is pinned."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from problems import random_csr, run_checked
from races import made_up_race

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.kernels.hyb_spmm import HYB_SPMM, rule_width
from spmark.impls.kernels.sddmm import CSR_SDDMM, RUNS_SDDMM, csr_tiles, sddmm_kernel
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.plan import SparseTir
from spmark.impls.sparsetir.search import PAPERS_HYB, PAPERS_SDDMM, kernels_ahead, search_hyb, search_sddmm
from spmark.impls.tuning.tune import builder, family_of, space_of

PROBLEM = Problem(Op.SPMM, random_csr(64, 64, [5] * 64), 64)


class Times:
    """A cost for every config, best at one known point."""

    def __init__(self, best: Config) -> None:
        self.best = best

    def __call__(self, config: Config) -> float:
        cost = 10.0
        for key, value in self.best.items():
            if config[key] != value:
                cost *= 1.05 + 0.001 * (crc32(str(config[key]).encode()) % 7)
        return cost


def searched(problem: Problem, pinned: Config, cost: Any) -> tuple[Config, list[Config]]:
    """Give what a search of hyb ends with, and what it asked for."""
    race, timer = made_up_race(cost)
    search_hyb(problem, pinned, race)
    space = space_of(HYB_SPMM, problem, pinned)
    assert all(config in space for config in timer.asked)
    return race.finish()[0], timer.asked


def test_the_best_point_of_separable_costs_is_found() -> None:
    best = {
        "c": 1,
        "max_width": 64,
        "vector": 4,
        "vectors": 2,
        "lanes": 8,
        "work": 16,
        "spread": 64,
        "together": 64,
        "order": "row",
        "threads": 256,
    }
    config, _ = searched(PROBLEM, {}, Times(best))
    assert config == best


def test_large_problems_are_searched_from_both_orders_of_rows() -> None:
    large = Problem(Op.SPMM, random_csr(2000, 2000, [40] * 2000), 64)
    config, asked = searched(large, {}, Times({"order": "near", "spread": 32}))
    assert (config["order"], config["spread"]) == ("near", 32)
    assert {one["vector"] for one in asked} == {4}
    wide = Problem(Op.SPMM, random_csr(2000, 2001, [40] * 2000), 64)
    assert searched(wide, {}, Times({"order": "near"}))[0]["order"] != "near", "there is no such order"


def test_pinned_values_are_not_searched() -> None:
    config, asked = searched(PROBLEM, {"c": 4, "max_width": 8}, Times({"work": 64}))
    assert {one["c"] for one in asked} == {4}
    assert {one["max_width"] for one in asked} == {8}
    assert config["c"] == 4


def test_the_papers_rule_is_measured_where_the_sweep_ends_before_it() -> None:
    narrow = Problem(Op.SPMM, random_csr(64, 64, [3] * 64), 64)
    assert rule_width(narrow) == 4
    # From 32 every narrower width is clearly worse, so that the sweep ends at 8; only the rule's own is best.
    times = {4: 1.0, 8: 40.0, 16: 20.0, 32: 10.0}

    def cost(config: Config) -> float:
        return times.get(config["max_width"], 10.0 * config["max_width"])

    config, asked = searched(narrow, {}, cost)
    assert config["max_width"] == 4
    assert 8 in {one.get("max_width") for one in asked}


def test_widths_between_the_powers_of_two_are_tried_where_they_save_a_twentieth() -> None:
    between = Problem(Op.SPMM, random_csr(64, 64, [45] * 64), 64)

    def cost(one: Config) -> float:
        return 1.0 + 0.5 * ("thirds" not in one) + abs(one.get("max_width", 0) - 64)

    config, asked = searched(between, {}, cost)
    assert (config["thirds"], config["max_width"]) == (True, 64)
    assert {one.get("thirds") for one in asked} == {None, True}
    # Of 64 * 16 + 4 * 64 slots 64 are saved, exactly a twentieth; with one row of 16 less it is more.
    for rows, tried in ((64, False), (63, True)):
        lengths = [16] * rows + [48] * 4
        _, asked = searched(Problem(Op.SPMM, random_csr(len(lengths), 64, lengths), 64), {}, Times({"work": 64}))
        assert ("thirds" in set().union(*asked)) == tried


@pytest.mark.parametrize(("lengths", "width"), [([1] * 8, 1), ([5] * 8, 8), ([8] * 8, 8), ([9] * 8, 16), ([0] * 8, 1)])
def test_the_papers_rule(lengths: list[int], width: int) -> None:
    assert rule_width(Problem(Op.SPMM, random_csr(8, 20, lengths), 32)) == width


def searched_sddmm(problem: Problem, cost: Any) -> tuple[Config, list[Config]]:
    race, timer = made_up_race(cost)
    search_sddmm(problem, race)
    spaces = [space_of(family, problem) for family in (CSR_SDDMM, RUNS_SDDMM)]
    assert all(any(config in space for space in spaces) for config in timer.asked)
    return race.finish()[0], timer.asked


def test_the_whole_space_of_sddmm_is_measured() -> None:
    problem = Problem(Op.SDDMM, PROBLEM.matrix, 64)
    best = {"vector": 2, "lanes": 16, "batch": 2}
    config, asked = searched_sddmm(problem, lambda config: 5.0 if config == best else 10.0)
    assert config == best
    paper = [one for one in asked if "run" not in one]
    assert paper == list(space_of(CSR_SDDMM, problem).configs())
    assert len(paper) == len(csr_tiles(problem.width, problem.dtype)) * 2


@pytest.mark.parametrize(("op", "width"), [(Op.SPMM, 64), (Op.SPMM, 6), (Op.SDDMM, 64), (Op.SDDMM, 512)])
def test_every_kernel_of_a_search_is_named_ahead(op: Op, width: int) -> None:
    problem = Problem(op, PROBLEM.matrix, width)
    search = searched if op is Op.SPMM else lambda given, _, cost: searched_sddmm(given, cost)
    _, asked = search(problem, {}, Times({"vectors": 2, "threads": 256} if op is Op.SPMM else {}))
    families = [HYB_SPMM] if op is Op.SPMM else [RUNS_SDDMM, CSR_SDDMM]
    needed = [family_of(families, config).kernel(problem, config) for config in asked]
    named = list(kernels_ahead(problem))
    assert set(needed) <= set(named)
    assert named[0] == needed[0], "what is asked first is compiled first"
    assert list(SparseTir(tuned=False).ahead(problem)) == [], "without a search its kernels are not compiled"


@pytest.mark.parametrize(("width", "columns"), [(32, {1}), (64, {1, 2})])
def test_the_papers_search_measures_every_c_with_its_rule_for_k(width: int, columns: set[int]) -> None:
    problem = Problem(Op.SPMM, PROBLEM.matrix, width)
    configs = list(space_of(PAPERS_HYB, problem).configs())
    assert [one["c"] for one in configs] == sorted([1, 2, 4, 8, 16] * len(columns))
    assert {one["vectors"] for one in configs} == columns
    shared = {"max_width": 8, "order": "width", "tail_in_last": True, "work": 8, "vector": 1, "lanes": 32}
    assert all(shared.items() <= one.items() and "thirds" not in one for one in configs)
    assert {(one["spread"], one["together"]) for one in configs} == {(NEVER, NEVER)}
    pinned = list(space_of(PAPERS_HYB, problem, {"c": 4, "max_width": 32}).configs())
    assert {(one["c"], one["max_width"]) for one in pinned} == {(4, 32)}


@pytest.mark.parametrize(("width", "tiles"), [(1, 1), (16, 3), (32, 6), (64, 8), (128, 9), (33, 3)])
def test_the_papers_space_of_sddmm_is_whole(width: int, tiles: int) -> None:
    problem = Problem(Op.SDDMM, PROBLEM.matrix, width)
    configs = list(space_of(PAPERS_SDDMM, problem).configs())
    # Tiles wider than J are left out; each tile has 4 numbers of groups and 3 of non-zeros.
    assert len(configs) == tiles * 4 * 3
    assert {one["threads"] // one["lanes"] for one in configs} == {1, 2, 4, 8}
    assert {one["batch"] for one in configs} == {1, 2, 4}
    for one in configs:
        sddmm_kernel(problem, one)


def test_both_families_of_sddmm_build_their_configs_in_one_race() -> None:
    problem = Problem(Op.SDDMM, random_csr(8, 8, [2] * 8), 128)
    build = builder(problem, open_target(find("host-simt")), (RUNS_SDDMM, CSR_SDDMM))
    for family in (RUNS_SDDMM, CSR_SDDMM):
        config = next(space_of(family, problem).configs())
        assert family_of((RUNS_SDDMM, CSR_SDDMM), config) is family
        run_checked(build(config), problem)
    assert "run" in SparseTir().build(problem, find("host-simt")).config
    narrow = Problem(Op.SDDMM, random_csr(8, 8, [2] * 8), 2048)
    assert "run" not in SparseTir().build(narrow, find("host-simt")).config, "no tile holds a row of X"
