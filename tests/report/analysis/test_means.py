"""Geometric means against a computation by hand, and what they say of the cases that they leave out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from spmark.records.schema import Baseline, Status
from spmark.report.analysis.cases import derive
from spmark.report.analysis.means import common_kinds, mean_speedups, mean_speedups_by_kind, over_matrices
from spmark.report.analysis.statistics import geometric_mean
from spmark.report.records import load_records


def row(records, label, problem, time_us, status):
    matrix, width = problem
    samples = {} if time_us is None else {"samples_us": [time_us]}
    return records.measurement(implementation=label, matrix=matrix, width=width, status=status, **samples)


@pytest.fixture
def derived(records, write):
    times = {
        "cusparse_best": {("a", 32): 10, ("a", 64): 20, ("b", 32): 30, ("b", 64): None},
        "gespmm": {("a", 32): 5, ("a", 64): 5, ("b", 32): 60, ("b", 64): 7},
        "dgl": {("a", 32): 20, ("a", 64): None, ("b", 32): 10},
        "cublas": {("a", 32): None, ("a", 64): None, ("b", 32): None, ("b", 64): None},
    }
    broken = {"cusparse_best": Status.OUT_OF_MEMORY, "dgl": Status.TIMEOUT, "cublas": Status.UNSUPPORTED}
    rows = [
        row(records, label, problem, time, Status.OK if time else broken[label])
        for label, cases in times.items()
        for problem, time in cases.items()
    ]
    return derive(load_records([write(rows)]), "cusparse_best")


def test_overall_by_hand(derived):
    means = mean_speedups(derived).set_index("label")
    assert "cusparse_best" not in means.index
    assert means.loc["gespmm", "speedup"] == pytest.approx((2 * 4 * 0.5) ** (1 / 3))
    assert means.loc["dgl", "speedup"] == pytest.approx((0.5 * 3) ** (1 / 2))
    assert means["cases"].to_dict() == {"gespmm": 3, "dgl": 2, "cublas": 0}
    assert means["left_out"].to_dict() == {
        "gespmm": "1 baseline out_of_memory",
        "dgl": "1 not run, 1 timeout",
        "cublas": "4 unsupported",
    }


def test_the_common_mean_covers_what_all_with_a_result_share(derived):
    means = mean_speedups(derived).set_index("label")
    assert means.loc["gespmm", "common_speedup"] == pytest.approx((2 * 0.5) ** 0.5)
    assert means.loc["dgl", "common_speedup"] == pytest.approx((0.5 * 3) ** 0.5)
    assert np.isnan(means.loc["cublas", "common_speedup"])
    assert means["common_cases"].to_dict() == {"gespmm": 2, "dgl": 2, "cublas": 0}


def test_groups_by_matrix_and_by_width(derived):
    by_matrix = mean_speedups(derived, ["matrix"]).set_index(["matrix", "label"])
    assert by_matrix.loc[("ogb/a", "gespmm"), "speedup"] == pytest.approx(8**0.5)
    assert by_matrix.loc[("ogb/b", "gespmm"), "speedup"] == pytest.approx(0.5)
    by_width = mean_speedups(derived, ["width"]).set_index(["width", "label"])
    assert by_width.loc[(32, "dgl"), "speedup"] == pytest.approx((0.5 * 3) ** 0.5)
    assert by_width.loc[(64, "gespmm"), "left_out"] == "1 baseline out_of_memory"


def test_the_overall_interval_draws_matrices_whole(records, write):
    rows = records.sweep(matrices=[f"s/m{i}" for i in range(6)], widths=(32, 64, 128, 256))
    derived = derive(load_records([write(rows)]), "cusparse_best")
    mean = mean_speedups(derived).set_index("label").loc["gespmm"]
    assert mean["speedup_low"] < mean["speedup"] < mean["speedup_high"]
    single = mean_speedups(derived[derived["matrix"] == "s/m0"]).set_index("label").loc["gespmm"]
    assert np.isnan(single["speedup_low"])


def test_what_solves_little_does_not_narrow_the_others(derived):
    hidden = (derived["label"] == "dgl") & (derived["width"] == 32) & (derived["matrix"] == "ogb/b")
    derived.loc[hidden, "speedup"] = np.nan
    means = mean_speedups(derived).set_index("label")
    assert means["common_cases"].to_dict() == {"gespmm": 3, "dgl": 0, "cublas": 0}
    assert means.loc["gespmm", "common_speedup"] == means.loc["gespmm", "speedup"]
    assert means.loc["dgl", "speedup"] == pytest.approx(0.5)
    assert np.isnan(means.loc["dgl", "common_speedup"])


def test_half_of_what_is_solved_is_too_little_to_be_ranked(derived):
    derived.loc[(derived["label"] == "gespmm") & (derived["width"] == 64), "speedup"] = np.nan
    derived.loc[(derived["label"] == "dgl") & (derived["matrix"] == "ogb/b"), "speedup"] = np.nan
    means = mean_speedups(derived).set_index("label")
    assert means["cases"].to_dict() == {"gespmm": 2, "dgl": 1, "cublas": 0}
    assert means["common_cases"].to_dict() == {"gespmm": 2, "dgl": 0, "cublas": 0}


def test_kinds_of_matrices_are_apart_and_their_mixture_says_so(derived):
    derived.loc[derived["matrix"] == "ogb/b", "matrix_kind"] = "twin"
    means = mean_speedups_by_kind(derived).set_index(["kinds", "label"])
    assert means.loc[("pattern", "gespmm"), "speedup"] == pytest.approx(8**0.5)
    assert means.loc[("twin", "gespmm"), "speedup"] == pytest.approx(0.5)
    assert means.loc[("mixed: pattern, twin", "gespmm"), "speedup"] == pytest.approx(4 ** (1 / 3))
    alone = mean_speedups_by_kind(derived[derived["matrix_kind"] == "twin"])
    assert set(alone["kinds"]) == {"twin"}


def test_kinds_of_common_cases(derived):
    derived.loc[derived["matrix"] == "ogb/b", "matrix_kind"] = "twin"
    assert common_kinds(derived) == {("spmm", "float32"): {"pattern", "twin"}}
    derived.loc[(derived["label"] == "gespmm") & (derived["matrix"] == "ogb/b"), "speedup"] = np.nan
    assert common_kinds(derived) == {("spmm", "float32"): {"pattern"}}


def test_an_interval_is_over_matrices_where_there_are_several():
    rows = pd.DataFrame({"matrix": ["a", "a", "b", "b"], "ratio": [1.0, 2.0, 4.0, np.nan]})
    assert over_matrices(rows, "ratio") == geometric_mean([1.0, 2.0, 4.0], ["a", "a", "b"])
    assert over_matrices(rows[:2], "ratio") == geometric_mean([1.0, 2.0])


def test_matrices_of_one_pattern_count_once(records, write):
    turn = Baseline(implementation="cusparse_best", config={}, samples_us=[8.0])
    rows = [
        records.measurement(matrix=name, matrix_hash=64 * pattern, samples_us=[time_us], baseline=turn)
        for name, pattern, time_us in (("a", "1", 1.0), ("same", "1", 1.0), ("b", "2", 4.0))
    ]
    derived = derive(load_records([write(rows)]), "cusparse_best")
    mean = mean_speedups(derived).set_index("label").loc["gespmm"]
    assert (mean["speedup"], mean["cases"], mean["problems"]) == (pytest.approx((8 * 2) ** 0.5), 2, 2)
