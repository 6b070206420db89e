"""The autotuner on made-up times: it finds the best of an axis, keeps what failed as a reason, and remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from problems import random_csr

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.sparsetir.search import (
    PARTITIONS,
    Remembered,
    Tuner,
    TuningCache,
    check_best,
    describe,
    rule_width,
    tiles,
    tune,
    tune_sddmm,
)

PROBLEM = Problem(Op.SPMM, random_csr(64, 64, [5] * 64), 64)


class Times:
    """A cost for every config, best at one known point; some values fail."""

    def __init__(self, best: dict[str, Any], broken: dict[str, Any] | None = None) -> None:
        self.best, self.broken, self.asked = best, broken or {}, []

    def __call__(self, config: dict[str, Any]) -> list[float]:
        self.asked.append(dict(config))
        for key, value in self.broken.items():
            if config.get(key) == value:
                raise BuildError(f"{key} = {value} is broken")
        cost = 10.0
        for key, value in self.best.items():
            if config[key] != value:
                cost *= 1.05 + 0.001 * (crc32(str(config[key]).encode()) % 7)
        return [cost, cost * 1.01, cost * 0.99]


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
    times = Times(best)
    config, tuner = tune(PROBLEM, {}, times)
    assert config == best
    keys = [tuple(sorted(c.items())) for c in times.asked]
    assert len(keys) == len(set(keys)), "nothing is measured twice"
    assert describe(tuple(tuner.seen.values())).measured == len(keys)


def test_large_problems_are_searched_from_both_orders_of_rows() -> None:
    large = Problem(Op.SPMM, random_csr(2000, 2000, [40] * 2000), 64)
    config, tuner = tune(large, {}, Times({"order": "near", "spread": 32}))
    assert (config["order"], config["spread"]) == ("near", 32)
    assert {c.config["vector"] for c in tuner.seen.values()} == {4}
    wide = Problem(Op.SPMM, random_csr(2000, 2001, [40] * 2000), 64)
    assert tune(wide, {}, Times({"order": "near"}))[0]["order"] != "near", "there is no such order"


def test_pinned_values_are_not_searched() -> None:
    times = Times({"work": 64})
    config, _ = tune(PROBLEM, {"c": 4, "max_width": 8}, times)
    assert {c["c"] for c in times.asked} == {4}
    assert {c["max_width"] for c in times.asked} == {8}
    assert config["c"] == 4


def test_the_papers_rule_is_measured_where_the_sweep_ends_before_it() -> None:
    narrow = Problem(Op.SPMM, random_csr(64, 64, [3] * 64), 64)
    assert rule_width(narrow) == 4
    # From 32 every narrower width is clearly worse, so that the sweep ends at 8; only the rule's own is best.
    times = {4: 1.0, 8: 40.0, 16: 20.0, 32: 10.0}
    config, tuner = tune(narrow, {}, lambda config: [times.get(config["max_width"], 10.0 * config["max_width"])])
    assert config["max_width"] == 4
    assert 8 in {candidate.config["max_width"] for candidate in tuner.seen.values()}


def test_what_fails_is_a_candidate_with_a_reason_and_never_the_best() -> None:
    times = Times({"spread": 64}, broken={"spread": 64})
    config, tuner = tune(PROBLEM, {}, times)
    assert config["spread"] != 64
    failed = [c for c in tuner.seen.values() if c.reason]
    assert failed
    assert all("spread = 64 is broken" in c.reason for c in failed)
    assert all(c.samples_us == () for c in failed)


def test_memory_that_runs_out_in_a_candidate_is_passed_over() -> None:
    def measure(config: dict[str, Any]) -> list[float]:
        if config["c"] > 1:
            raise MemoryError("no room")
        return [5.0]

    config, tuner = tune(PROBLEM, {}, measure)
    assert config["c"] == 1
    assert "no room" in {c.reason for c in tuner.seen.values()}


def test_nothing_that_works_is_an_error_with_the_reasons() -> None:
    config, tuner = tune(PROBLEM, {"c": 1}, Times({}, broken={"c": 1}))
    with pytest.raises(BuildError, match="is broken"):
        check_best(config, tuner)


def test_an_axis_ends_after_two_values_that_are_much_worse() -> None:
    asked = []

    def measure(config: dict[str, Any]) -> list[float]:
        asked.append(config["c"])
        return [10.0 * config["c"]]

    assert Tuner(measure).along({"c": 1}, "c", PARTITIONS[1:]) == {"c": 1}
    assert asked == [1, 2, 4]


def test_a_better_value_begins_the_count_of_worse_ones_again() -> None:
    times = {1: 10.0, 2: 11.0, 4: 9.0, 8: 10.0, 16: 5.0}
    assert Tuner(lambda config: [times[config["c"]]]).along({"c": 1}, "c", PARTITIONS[1:]) == {"c": 16}


@pytest.mark.parametrize(("lengths", "width"), [([1] * 8, 1), ([5] * 8, 8), ([8] * 8, 8), ([9] * 8, 16), ([0] * 8, 1)])
def test_the_papers_rule(lengths: list[int], width: int) -> None:
    assert rule_width(Problem(Op.SPMM, random_csr(8, 20, lengths), 32)) == width


@pytest.mark.parametrize("width", [1, 3, 6, 32, 100, 128, 512])
@pytest.mark.parametrize("dtype", list(DType))
def test_tiles_divide_and_fit(width: int, dtype: DType) -> None:
    found = tiles(Problem(Op.SPMM, PROBLEM.matrix, width, dtype))
    assert found
    assert all(width % vector == 0 and vector * dtype.itemsize <= 16 for vector, _ in found)


def test_a_search_is_remembered_with_its_cost(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    config, tuner = tune(PROBLEM, {}, Times({"work": 64}))
    found = Remembered(config, 1.5, tuple(tuner.seen.values()))
    cache = TuningCache(PROBLEM, "gpu", {})
    assert cache.read() is None
    cache.write(found)
    assert cache.read() == found
    assert TuningCache(PROBLEM, "another gpu", {}).read() is None
    assert TuningCache(PROBLEM, "gpu", {"c": 2}).read() is None
    other = Problem(Op.SPMM, replace(PROBLEM.matrix, indices=PROBLEM.matrix.indices[::-1].copy()), 64)
    assert TuningCache(other, "gpu", {}).read() is None
    changed = "spmark.impls.sparsetir.search.implementation_version"
    with monkeypatch.context() as patch:
        patch.setattr(changed, lambda package: "another version of the code")
        assert TuningCache(PROBLEM, "gpu", {}).read() is None
    assert TuningCache(PROBLEM, "gpu", {}).read() == found
    problems = [replace(PROBLEM, width=128), replace(PROBLEM, dtype=DType.FLOAT16), replace(PROBLEM, op=Op.SDDMM)]
    for one in (*problems, replace(PROBLEM, op=Op.SDDMM, scaled=True)):
        assert TuningCache(one, "gpu", {}).read() is None
    cache.path.write_text("{")
    assert cache.read() is None


def test_the_whole_space_of_sddmm_is_measured() -> None:
    problem = Problem(Op.SDDMM, PROBLEM.matrix, 64)
    best = {"vector": 2, "lanes": 16, "batch": 2, "searched": True}
    times = Times(best)
    config, tuner = tune_sddmm(problem, times)
    assert config == best
    assert len(tuner.seen) == len(tiles(problem, (8, 16, 32))) * 4
