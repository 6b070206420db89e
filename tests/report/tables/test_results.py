"""Tables of one device: when plans have paid off."""

from __future__ import annotations

from math import inf, nan

import pytest

from spmark.records.schema import Baseline, Status
from spmark.report.analysis.cases import derive
from spmark.report.records import load_records
from spmark.report.tables.results import (
    break_even_table,
    build_table,
    case_table,
    failure_table,
    flag_table,
    mean_tables,
    times_table,
)
from spmark.report.tables.table import heading

# Matrix: time of a run and seconds of choosing; the baseline takes 10 us.
PLANS = {"a": (5.0, 1.0), "b": (9.0, 1.0), "c": (8.0, 4.0), "d": (12.0, 1.0)}


def test_the_median_counts_plans_that_never_pay_off(records, write):
    base = Baseline(implementation="cusparse_best", config={}, samples_us=[10.0] * 8)
    rows = [
        records.measurement(
            implementation="liteform", label=label, matrix=matrix, matrix_hash=f"{i:064x}", baseline=base,
            samples_us=[us] * 8, phases_s={"search": choosing_s, "compile": 1.0},
        )
        for i, (matrix, (us, choosing_s)) in enumerate(PLANS.items())
        for label in ("liteform", "slower")
        if label == "liteform" or matrix in "bd"
    ]  # fmt: skip
    frame = break_even_table(derive(load_records([write(rows)]), "cusparse_best"), "cusparse_best").frame
    frame = frame.set_index("label")
    assert frame.loc["liteform", "break_even_runs"] == pytest.approx(1_500_000)
    assert frame.loc["liteform", "break_even_runs_with_compile"] == pytest.approx(2_250_000)
    assert frame.loc["liteform", ["cases", "paid_off_share"]].tolist() == [4, 0.75]
    assert frame.loc["slower", "break_even_runs"] == inf


def test_times_stand_side_by_side(records, write):
    times = {("b", "gespmm"): 5.0, ("a", "gespmm"): 7.0, ("a", "my_label"): 9.0}
    rows = [
        records.measurement(matrix=matrix, label=label, samples_us=[us] * 8) for (matrix, label), us in times.items()
    ]
    rows.append(records.measurement(matrix="c", status=Status.TIMEOUT))
    frame = times_table(derive(load_records([write(rows)]), None)).frame
    assert [heading(column) for column in frame] == ["matrix", "op", "dtype", "J", "gespmm (µs)", "my_label (µs)"]
    assert frame["matrix"].tolist() == ["ogb/a", "ogb/b"]
    assert frame["gespmm_us"].tolist() == [7.0, 5.0]
    assert frame["my_label_us"].tolist() == pytest.approx([9.0, nan], nan_ok=True)


def test_a_second_seed_has_rows_of_its_own_in_every_table_of_cases(records, write):
    slow = {"throttled": ["heat"], "phases_s": {"convert": 1.0}}
    rows = [
        records.measurement(seed=seed, label=label, samples_us=[us] * 8, **slow)
        for seed, label, us in ((0, "gespmm", 5.0), (1, "gespmm", 15.0), (0, "other", 7.0), (1, "other", 21.0))
    ]
    rows += [records.measurement(seed=seed, label="late", status=Status.TIMEOUT) for seed in (0, 1)]
    derived = derive(load_records([write(rows)]), None)
    times = times_table(derived).frame
    assert [heading(column) for column in times] == ["matrix", "op", "dtype", "J", "seed", "gespmm (µs)", "other (µs)"]
    assert times[["seed", "gespmm_us", "other_us"]].to_numpy().tolist() == [[0, 5, 7], [1, 15, 21]]
    cases = case_table(derived).frame
    assert list(cases)[:6] == ["matrix", "op", "dtype", "width", "seed", "label"]
    assert list(zip(cases["seed"], cases["label"], cases["median_us"].fillna(0), strict=True)) == [
        (0, "gespmm", 5), (0, "late", 0), (0, "other", 7), (1, "gespmm", 15), (1, "late", 0), (1, "other", 21)
    ]  # fmt: skip
    assert build_table(derived, None).frame["seed"].tolist() == [0, 0, 1, 1]
    assert flag_table(derived).frame["seed"].tolist() == [0, 0, 1, 1]
    assert failure_table(derived).frame["seed"].tolist() == [0, 1]
    assert failure_table(derived[derived["seed"] == 1]).frame.columns[4] == "label"


def test_what_has_no_speedup_has_no_row_and_is_named(records, write):
    rows = records.sweep(widths=(32,), samples=8)
    rows += [
        records.measurement(implementation=name, status=Status.UNSUPPORTED, width=32) for name in ("dgl", "cublas")
    ]
    for table in mean_tables(derive(load_records([write(rows)]), "cusparse_best"), "cusparse_best"):
        assert set(table.frame["label"]) == {"gespmm", "sparsetir"}
        assert table.frame["own_cases"].gt(0).all()
        assert table.note.endswith("Without any speed-up, so without a row: cublas, dgl.")
