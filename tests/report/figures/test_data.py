"""The numbers that every figure draws, against a computation by hand from records with round times."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from spmark.impls.core.record import Baseline, MatrixKind, ProblemFacts, Status
from spmark.report.derive.cases import derive
from spmark.report.figures.costs import break_even, paid_off, search_time, searched
from spmark.report.figures.roof import measured_roof
from spmark.report.figures.speedups import speedup_over_size, speedup_per_matrix, speedup_per_width
from spmark.report.load.records import load_records
from spmark.report.tables.summary import short_table

# Own time and baseline's time in microseconds by label, matrix and J; 0 is a timeout.
TIMES = {
    ("gespmm", "small", 32): (5, 10),
    ("gespmm", "small", 64): (10, 80),
    ("gespmm", "large", 32): (40, 20),
    ("gespmm", "large", 64): (20, 40),
    ("sparsetir", "small", 32): (2, 10),
    ("sparsetir", "small", 64): (0, 80),
    ("sparsetir", "large", 32): (10, 20),
    ("sparsetir", "large", 64): (10, 40),
}
SIZES = {"small": (100, 1_000, MatrixKind.PATTERN), "large": (1_000, 50_000, MatrixKind.TWIN)}


@pytest.fixture
def derived(records, write):
    rows = []
    for (label, matrix, width), (own_us, base_us) in TIMES.items():
        num_rows, nnz, kind = SIZES[matrix]
        facts = ProblemFacts(
            num_rows=num_rows, num_cols=num_rows, nnz=nnz, longest_row=99, flops=1_000, compulsory_bytes=4_000_000
        )
        rows.append(
            records.measurement(
                implementation=label, matrix=matrix, width=width, matrix_kind=kind, problem=facts,
                status=Status.OK if own_us else Status.TIMEOUT, samples_us=[float(own_us)] * 8,
                baseline=Baseline(implementation="cusparse_best", config={}, samples_us=[float(base_us)] * 8),
                phases_s={"search": 8e-3, "convert": 2e-3, "compile": 1.0, "upload": 7.0}
                if label == "sparsetir" else {"compile": 0.5},
            )
        )  # fmt: skip
    return derive(load_records([write(rows)]), "cusparse_best")


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
    assert "~ marks a bar" in plot.caption
    calm = speedup_per_matrix(derived[derived["label"] == "steady"], "cusparse_best")
    assert not [text for ax in calm.figure.axes for text in ax.texts if text.get_text() == "~"]
    assert "~" not in calm.caption + calm.figure.legends[0].get_title().get_text()
    table = {row["implementation"]: row["speedup"] for row in short_table(load_records([write(rows)]))}
    assert [label for label, text in table.items() if "~" in text] == ["noisy"]


def test_speedups_per_width(derived):
    data = speedup_per_width(derived, "cusparse_best", "spmm", "float32").data
    found = {(row["label"], row["panel"].split("/")[1], row["width"]): row["speedup"] for _, row in data.iterrows()}
    assert found == {key: base / own for key, (own, base) in TIMES.items() if own}


def test_speedups_over_size_keep_own_cases_and_kinds(derived):
    data = speedup_over_size(derived, "cusparse_best").data.set_index(["matrix", "label"])
    assert data.loc[("ogb/small", "sparsetir"), ["cases", "kinds"]].tolist() == [1, "pattern"]
    assert data.loc[("ogb/small", "sparsetir"), "speedup"] == pytest.approx(5)
    assert data.loc[("ogb/large", "gespmm"), ["nnz", "mean_row", "kinds"]].tolist() == [50_000, 50, "twin"]


def test_shares_of_the_floor(derived):
    # 4 MB at 4 TB/s take 1 us.
    data = measured_roof(derived).data.set_index(["matrix", "label", "width"]).sort_index()
    assert data.loc[("ogb/large", "gespmm"), "share"].to_dict() == pytest.approx({32: 1 / 40, 64: 1 / 20})
    assert set(data["roof_us"]) == {1.0}


def test_search_times_leave_uploading_out(derived):
    assert set(searched(derived)["label"]) == {"sparsetir"}
    data = search_time(derived).data
    assert len(data) == 3
    assert data["spent_s"].tolist() == pytest.approx([1.01] * 3)
    assert sorted(data["median_us"]) == [2, 10, 10]


def test_break_even_counts(derived):
    data = break_even(derived, "cusparse_best").data.set_index(["label", "matrix", "width"]).sort_index()
    # 10 ms of search and conversion over 10, 30 and 8 us saved by each run.
    assert data.loc["sparsetir", "break_even_runs"].tolist() == [1000, 334, 1250]
    assert data.loc["gespmm", "break_even_runs"].to_dict()[("ogb/large", 32)] == inf
    assert data.loc["gespmm", "break_even_runs"].to_dict()[("ogb/small", 32)] == 0
    assert data.loc[("gespmm", "ogb/small", 32), "break_even_runs_with_compile"] == 100_000


def test_steps_of_what_has_paid_off():
    runs, share = paid_off(np.array([0.0, 10.0, inf, 10.0]), 1000.0)
    assert runs.tolist() == [1, 10, 1000]
    assert share.tolist() == [0.25, 0.75, 0.75]
    runs, share = paid_off(np.array([inf]), 1000.0)
    assert (runs.tolist(), share.tolist()) == ([1, 1000], [0, 0])
