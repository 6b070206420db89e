"""Configs of one implementation beside each other, with ratios by hand."""

from __future__ import annotations

import math

import pytest

from spmark.records.schema import Baseline
from spmark.report.analysis.cases import derive
from spmark.report.figures.ablation import drawable, variant_cases, variants
from spmark.report.records import load_records

# Label, matrix: (time, time of the interleaved baseline, seconds of the search).
CASES = {
    ("stile", "a"): (10.0, 20.0, 1.0),
    ("stile", "b"): (8.0, 8.0, 2.0),
    ("stile_levels_1", "a"): (15.0, 20.0, 0.5),
    # The device was slower by half then, which the baseline shows.
    ("stile_levels_1", "b"): (24.0, 12.0, 8.0),
    ("stile_blocks", "a"): (20.0, None, 0.0),
    ("gespmm", "a"): (1.0, 20.0, 0.0),
}


def derived_of(records, write, cases=CASES, names=None):
    rows = [
        records.measurement(
            implementation=(names or {}).get(label, label.split("_")[0]), label=label, matrix=matrix,
            matrix_hash=f"{ord(matrix[0]):064x}", samples_us=[us] * 8,
            phases_s={"search": search_s, "upload": 9.0} if search_s else {},
            baseline=base_us and Baseline(implementation="cusparse_best", config={}, samples_us=[base_us] * 8),
        )
        for (label, matrix), (us, base_us, search_s) in cases.items()
    ]  # fmt: skip
    return derive(load_records([write(rows)]), "cusparse_best")


def test_ratios_of_a_case_are_over_the_first_label_without_drift(records, write):
    cases = variant_cases(derived_of(records, write)).set_index(["label", "matrix"])
    assert set(cases["over"]) == {"stile"}
    assert cases.loc[("stile_levels_1", "ogb/a"), "time_ratio"] == pytest.approx(1.5)
    assert cases.loc[("stile_levels_1", "ogb/b"), "time_ratio"] == pytest.approx(2.0)
    assert cases.loc[("stile_levels_1", "ogb/b"), "search_ratio"] == pytest.approx(4.0)
    assert cases.loc[("stile_blocks", "ogb/a"), "time_ratio"] == pytest.approx(2.0), (
        "no baseline: the times as they are"
    )
    assert math.isnan(cases.loc[("stile_blocks", "ogb/a"), "search_ratio"])


def test_means_of_every_group_and_of_all(records, write):
    means = variants(derived_of(records, write)).set_index(["group", "label"])
    assert means.loc[("all", "stile_levels_1"), "time_ratio"] == pytest.approx(math.sqrt(3.0))
    assert means.loc[("all", "stile_levels_1"), "search_ratio"] == pytest.approx(math.sqrt(2.0))
    assert means.loc[("ogb/b", "stile_levels_1"), "cases"] == 1


def test_without_a_label_of_its_name_the_first_run_counts(records, write):
    cases = {("reordered", "a"): (4.0, 8.0, 1.0), ("as it is", "a"): (6.0, 8.0, 1.0)}
    found = variant_cases(derived_of(records, write, cases, dict.fromkeys(("reordered", "as it is"), "lo_spmm")))
    assert found[["label", "over"]].to_numpy().tolist() == [["as it is", "reordered"]]


def test_what_has_no_variants_is_not_drawn(records, write):
    one = {key: value for key, value in CASES.items() if key[0] in ("stile", "gespmm")}
    assert not drawable(derived_of(records, write, one), "time_ratio")
