"""Speed-ups per matrix, per width and over size, by hand."""

from __future__ import annotations

from math import nan

import numpy as np
import pandas as pd
import pytest

from spmark.records.schema import Baseline
from spmark.report.analysis.cases import derive
from spmark.report.figures.speedups import speedup_over_size, speedup_per_matrix, speedup_per_width
from spmark.report.records import load_records
from spmark.report.tables.table import short_table


def test_speedups_per_matrix_are_over_common_cases(derived):
    data = speedup_per_matrix(derived, "cusparse_best").data.set_index(["group", "label"])
    # gespmm is 2x and 8x on small, but sparsetir has no result for the second; large is 0.5x and 2x, 2x and 4x.
    assert data["speedup"].to_dict() == pytest.approx(
        {
            ("ogb/small", "gespmm"): 4.0,
            ("ogb/small", "sparsetir"): nan,
            ("ogb/large", "gespmm"): 1.0,
            ("ogb/large", "sparsetir"): 8**0.5,
            ("all pattern", "gespmm"): 4.0,
            ("all pattern", "sparsetir"): nan,
            ("all twin", "gespmm"): 1.0,
            ("all twin", "sparsetir"): 8**0.5,
            ("all mixed", "gespmm"): 2 ** (1 / 3),
            ("all mixed", "sparsetir"): 40 ** (1 / 3),
        },
        nan_ok=True,
    )
    assert data.loc[("all mixed", "gespmm"), ["cases", "problems"]].tolist() == [3, 4]
    assert data.loc[("all mixed", "gespmm"), "kinds"] == "mixed: pattern, twin"
    assert data.loc[("ogb/small", "sparsetir"), "left_out"] == "1 timeout"


def test_what_mixes_no_kinds_has_no_bar_of_all_kinds(derived):
    """Without sparsetir on the small matrix the large one, a twin, has all common cases."""
    few = derived[(derived["label"] != "sparsetir") | (derived["matrix"] == "ogb/large")]
    few = pd.concat([few, few[few["label"] == "sparsetir"].assign(width=128)], ignore_index=True)
    plot = speedup_per_matrix(few, "cusparse_best")
    assert "all mixed" not in set(plot.data["group"])
    assert {"all pattern", "all twin"} <= set(plot.data["group"])
    assert "all mixed" in set(speedup_per_matrix(derived, "cusparse_best").data["group"])


def test_bars_of_cases_with_wide_intervals_are_marked_and_the_mark_is_explained(records, write):
    """One label varies by a half from sample to sample, the other by nothing; both run beside a steady baseline."""
    rng = np.random.default_rng(0)
    rows = []
    for label, spread in (("noisy", 0.5), ("steady", 0.0)):
        for matrix, width in (("small", 32), ("small", 64), ("large", 32)):
            base = Baseline(implementation="cusparse_best", config={}, samples_us=[10.0] * 15)
            samples = list(5 * rng.lognormal(0, spread, 15))
            rows.append(records.measurement(label=label, matrix=matrix, width=width, samples_us=samples, baseline=base))
    derived = derive(load_records([write(rows)]), "cusparse_best")
    assert derived.groupby("label")["wide"].sum().to_dict() == {"noisy": 3, "steady": 0}
    plot = speedup_per_matrix(derived, "cusparse_best")
    assert plot.data.groupby("label")["wide_share"].mean().to_dict() == {"noisy": 1.0, "steady": 0.0}
    marks = [text for ax in plot.figure.axes for text in ax.texts if text.get_text() == "~"]
    assert len(marks) == plot.data["label"].eq("noisy").sum()
    assert plot.figure.legends[0].get_title().get_text() == "~ half of its cases vary by more than ±10%"
    calm = speedup_per_matrix(derived[derived["label"] == "steady"], "cusparse_best")
    assert not [text for ax in calm.figure.axes for text in ax.texts if text.get_text() == "~"]
    assert "~" not in calm.figure.legends[0].get_title().get_text()
    table = {row["implementation"]: row["speedup"] for row in short_table(load_records([write(rows)]))}
    assert [label for label, text in table.items() if "~" in text] == ["noisy"]


def test_speedups_per_width(derived, round_times):
    data = speedup_per_width(derived, "cusparse_best", "spmm", "float32").data
    found = {(row["label"], row["panel"].split("/")[1], row["width"]): row["speedup"] for _, row in data.iterrows()}
    assert found == {key: base / own for key, (own, base) in round_times.items() if own}


def test_speedups_over_size_keep_own_cases_and_kinds(derived):
    data = speedup_over_size(derived, "cusparse_best").data.set_index(["matrix", "label"])
    assert data.loc[("ogb/small", "sparsetir"), ["cases", "kinds"]].tolist() == [1, "pattern"]
    assert data.loc[("ogb/small", "sparsetir"), "speedup"] == pytest.approx(5)
    assert data.loc[("ogb/large", "gespmm"), ["nnz", "mean_row", "kinds"]].tolist() == [50_000, 50, "twin"]
