"""Derived columns: whose samples a speed-up is made of, shares of floors, break-even, flags."""

from __future__ import annotations

from datetime import timedelta
from math import inf, isnan, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import DType
from spmark.records.schema import Baseline, Status
from spmark.report.analysis.cases import (
    PROBLEM,
    beside,
    choose_baseline,
    derive,
    each_problem_once,
    medians,
    spent_s,
)
from spmark.report.analysis.means import mean_speedups
from spmark.report.records import current, load_records


@pytest.fixture
def derived_of(write):
    def derived(rows, baseline=None):
        frame = load_records([write(rows)])
        return derive(frame, baseline or choose_baseline(frame)).set_index("label")

    return derived


def test_the_rows_own_interleaved_baseline_comes_first(records, derived_of):
    beside = Baseline(implementation="cusparse_best", config={}, samples_us=[30.0, 31.0, 32.0])
    rows = [
        records.measurement(implementation="cusparse_best", samples_us=[50.0]),
        records.measurement(samples_us=[10.0, 11.0, 12.0], baseline=beside),
        records.measurement(implementation="dgl", samples_us=[100.0]),
    ]
    derived = derived_of(rows)
    assert derived["speedup"].to_dict() == pytest.approx({"cusparse_best": 1.0, "gespmm": 31 / 11, "dgl": 0.5})
    assert derived["speedup_from"].to_dict() == {"cusparse_best": "itself", "gespmm": "interleaved", "dgl": "record"}
    assert derived["baseline_us"].to_dict() == {"cusparse_best": 50.0, "gespmm": 31.0, "dgl": 50.0}


def test_another_baseline_takes_the_records(records, derived_of):
    beside = Baseline(implementation="cusparse_best", config={}, samples_us=[30.0])
    rows = [
        records.measurement(samples_us=[10.0], baseline=beside),
        records.measurement(implementation="dgl", samples_us=[40.0], baseline=beside),
    ]
    derived = derived_of(rows, "dgl")
    assert derived.loc["gespmm", "speedup"] == 4.0
    assert derived.loc["gespmm", "speedup_from"] == "common"


def test_a_common_baseline_removes_the_drift_between_two_records(records, derived_of):
    def beside(*samples: float) -> Baseline:
        return Baseline(implementation="cusparse_best", config={}, samples_us=list(samples))

    rows = [
        records.measurement(samples_us=[10.0, 10.0, 12.0], baseline=beside(33.0, 33.0, 34.0)),
        records.measurement(implementation="dgl", samples_us=[40.0, 40.0, 42.0], baseline=beside(30.0, 30.0, 31.0)),
        records.measurement(implementation="triton_blocksparse", samples_us=[20.0]),
    ]
    derived = derived_of(rows, "dgl")
    # The machine was a tenth slower while gespmm ran: dgl would have taken 44 us then.
    assert derived.loc["gespmm", "speedup"] == pytest.approx(4.4)
    assert derived.loc["gespmm", "baseline_us"] == pytest.approx(44.0)
    assert derived.loc["triton_blocksparse", "speedup"] == 2.0
    assert derived["speedup_from"].to_dict() == {
        "gespmm": "common", "dgl": "itself", "triton_blocksparse": "record"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "speedup"),
    [
        (DeviceKind.CUDA, {"system": "Linux 6.2"}, 5.0),
        (DeviceKind.CUDA, {"cores": 64}, 5.0),
        (DeviceKind.CUDA, {"driver": "590.1"}, nan),
        (DeviceKind.CUDA, {"cuda": "13.1"}, nan),
        (DeviceKind.CPU, {"system": "Linux 6.2"}, 5.0),
        (DeviceKind.CPU, {"cores": 64}, nan),
    ],
)
def test_the_baselines_record_counts_where_a_like_machine_has_measured_it(records, write, kind, change, speedup):
    rows = [
        records.measurement(implementation="dgl", samples_us=[50.0], phases_s={"select": 1.0}),
        records.measurement(samples_us=[10.0], phases_s={"select": 3.0}),
    ]
    place = write([row.model_copy(update={"device_kind": kind}) for row in rows], records.device_spec(kind=kind))
    frame = load_records([place]).set_index("label", drop=False).rename_axis(None)
    frame.at["dgl", "facts"] = frame.at["dgl", "facts"].model_copy(update=change)
    row = derive(frame, "dgl").loc["gespmm"]
    assert row["speedup"] == pytest.approx(speedup, nan_ok=True)
    assert row["speedup_from"] == ("" if isnan(speedup) else "record")
    assert isnan(row["break_even_runs"]) == isnan(speedup)
    means = mean_speedups(derive(frame, "dgl"))
    assert list(means["left_out"]) == ["1 baseline of another machine" if isnan(speedup) else ""]


def test_a_baseline_of_another_machine_that_ran_in_turn_counts_and_its_building_does_not(records, write):
    turn = Baseline(implementation="cusparse_best", config={}, samples_us=[30.0])
    rows = [
        records.measurement(samples_us=[10.0], baseline=turn, phases_s={"select": 3.0}),
        records.measurement(implementation="dgl", samples_us=[20.0], baseline=turn),
        records.measurement(implementation="cusparse_best", samples_us=[99.0], phases_s={"select": 1.0}),
    ]
    frame = load_records([write(rows)]).set_index("label", drop=False).rename_axis(None)
    for other in ("dgl", "cusparse_best"):
        frame.at[other, "facts"] = frame.at[other, "facts"].model_copy(update={"driver": "590.1"})
    row = derive(frame, "cusparse_best").loc["gespmm"]
    assert (row["speedup"], row["speedup_from"]) == (3.0, "interleaved")
    assert row["break_even_runs"] == pytest.approx(3.0 / 20e-6)
    assert derive(frame, "dgl").loc["gespmm", ["speedup", "speedup_from"]].tolist() == [2.0, "common"]


def test_without_facts_machines_are_told_apart_by_their_environments(records, write):
    rows = [records.measurement(implementation="dgl", samples_us=[50.0]), records.measurement(samples_us=[10.0])]
    frame = load_records([write(rows)]).set_index("label", drop=False).rename_axis(None).assign(facts=None)
    assert derive(frame, "dgl").loc["gespmm", "speedup"] == 5.0
    frame.at["dgl", "environment"] = "b" * 16
    assert isnan(derive(frame, "dgl").loc["gespmm", "speedup"])


def test_a_pinned_config_of_the_baseline_is_a_rival(records, derived_of):
    rows = [
        records.measurement(implementation="scipy_cpu", samples_us=[10.0]),
        records.measurement(
            implementation="scipy_cpu", label="one thread", requested={"threads": 1}, samples_us=[40.0]
        ),
    ]
    derived = derived_of(rows, "scipy_cpu")
    assert derived["is_baseline"].to_dict() == {"scipy_cpu": True, "one thread": False}
    assert derived.loc["one thread", "speedup"] == 0.25
    assert derived_of(rows, "one thread").loc["scipy_cpu", "speedup"] == 4.0


def test_other_problems_are_never_compared(records, derived_of):
    rows = [
        records.measurement(implementation="dgl", samples_us=[10.0]),
        *(
            records.measurement(samples_us=[5.0], label=str(change), **change)
            for change in ({"width": 64}, {"dtype": DType.FLOAT16}, {"matrix": "other"}, {"seed": 1})
        ),
    ]
    derived = derived_of(rows, "dgl").drop("dgl")
    assert derived["speedup"].isna().all()
    assert (derived["speedup_from"] == "").all()


def test_shares_of_floors_by_hand(records, derived_of):
    row = derived_of([records.measurement(samples_us=[7.0])]).loc["gespmm"]
    assert row["bytes_share"] == pytest.approx(1_400_000 / 4e12 * 1e6 / 7)
    assert row["flops_share"] == pytest.approx(12_800_000 / 6e13 * 1e6 / 7)
    assert row["gflops_per_s"] == pytest.approx(12_800_000 / 7e-6 / 1e9)


def test_what_is_not_ok_has_no_times(records, derived_of):
    rows = [
        records.measurement(implementation="dgl", samples_us=[10.0]),
        records.measurement(status=Status.IMPLAUSIBLE, reason="expected at least 0.35 us, found 0.1", samples_us=[0.1]),
        records.measurement(implementation="cublas", status=Status.RUN_ERROR),
    ]
    derived = derived_of(rows, "dgl")
    for label in ("gespmm", "cublas"):
        for column in ("median_us", "speedup", "bytes_share", "gflops_per_s", "break_even_runs"):
            assert isnan(derived.loc[label, column]), (label, column)


def test_break_even_counts_choosing_and_shows_compiling_beside(records, derived_of):
    rows = [
        # The baseline's own search does not let its rivals pay off sooner.
        records.measurement(
            implementation="dgl", samples_us=[20.0], phases_s={"search": 9.0, "convert": 1.0, "compile": 2.0}
        ),
        records.measurement(
            samples_us=[10.0],
            phases_s={"features": 1.0, "select": 1.0, "search": 2.0, "convert": 1.0, "compile": 12.0, "upload": 99.0},
        ),
        records.measurement(implementation="cublas", samples_us=[30.0], phases_s={"convert": 0.5}),
    ]
    derived = derived_of(rows, "dgl")
    assert derived.loc["gespmm", "break_even_runs"] == 400_000
    assert derived.loc["gespmm", "break_even_runs_with_compile"] == 1_400_000
    assert derived.loc["cublas", "break_even_runs"] == inf
    assert derived.loc["gespmm", "build_s"] == 116.0


def test_throttled_and_wide_are_flagged_not_dropped(records, derived_of):
    rng = np.random.default_rng(0)
    rows = [
        records.measurement(samples_us=list(10 * rng.lognormal(0, 0.001, 30))),
        records.measurement(label="hot", samples_us=[10.0] * 30, throttled=["power cap"]),
        records.measurement(label="wide", samples_us=list(10 * rng.lognormal(0, 0.5, 30))),
    ]
    derived = derived_of(rows)
    assert derived.loc["gespmm", "flags"] == ""
    assert derived.loc["hot", "flags"] == "throttled (power cap)"
    assert derived.loc["wide", "flags"].startswith("wide interval")
    assert derived["median_us"].notna().all()


def test_a_busy_machine_is_flagged(records, derived_of):
    """The environment of these records has 16 cores."""
    rows = [
        records.measurement(samples_us=[10.0] * 30, free_cores=14.9, load_average=3.0),
        records.measurement(label="beside", samples_us=[10.0] * 30, free_cores=9.5),
        records.measurement(label="old", samples_us=[10.0] * 30),
    ]
    derived = derived_of(rows)
    assert derived["flags"].to_dict() == {
        "gespmm": "",
        "beside": "busy machine (other processes take 6.5 of 16 cores)",
        "old": "",
    }
    assert derived["taken_cores"].to_dict() == pytest.approx({"gespmm": 1.1, "beside": 6.5, "old": 0.0})


def test_the_default_baseline_is_named_most(records, write):
    def beside(name, width):
        baseline = Baseline(implementation=name, config={}, samples_us=[1.0])
        return records.measurement(samples_us=[1.0], width=width, baseline=baseline)

    frame = load_records([write([beside("dgl", 1), beside("cusparse", 2), beside("cusparse", 3)])])
    assert choose_baseline(frame) == "cusparse"
    assert choose_baseline(frame, "dgl") == "dgl"
    assert choose_baseline(frame, "gespmm") == "gespmm"
    assert choose_baseline(frame, "unheard-of") == "cusparse"
    assert choose_baseline(frame.assign(baseline_implementation="")) is None


def test_a_row_beside_others_is_the_last_of_its_problem():
    rows = pd.DataFrame([("spmm", "float32", name, 32, 0) for name in "cabc"], [7, 5, 3, 1], PROBLEM)
    others = rows.assign(matrix=["a", "c", "c", "d"], time=[1.0, 2.0, 3.0, 4.0])
    found = beside(rows, others, "time")
    assert found.index.tolist() == [7, 5, 3, 1]
    assert found["time"].tolist() == pytest.approx([3.0, 1.0, np.nan, 3.0], nan_ok=True)


def test_unknown_phases_cost_nothing_and_no_samples_have_no_median():
    phases = pd.Series([{"search": 1.0, "compile": 2.0, "upload": 4.0}, {}])
    assert spent_s(phases).tolist() == [3.0, 0.0]
    assert spent_s(phases, ["upload", "convert"]).tolist() == [4.0, 0.0]
    found = medians(pd.Series([np.array([3.0, 1.0, 2.0]), np.empty(0)]))
    assert found.tolist() == pytest.approx([2.0, np.nan], nan_ok=True)


def test_matrices_of_one_pattern_meet_under_one_name_with_the_newest_row_of_each_label(records, write):
    same, other = "1" * 64, "2" * 64
    known = (
        ("planetoid", same, 32, "gespmm"), ("planetoid", same, 64, "gespmm"), ("twice", same, 32, "rowsplit"),
        ("twice", other, 128, "gespmm"), ("mirror", same, 32, "gespmm"), ("planetoid", same, 128, "gespmm"),
    )  # fmt: skip
    refused = ("mirror", "", 64, "rowsplit"), ("mirror", "", 64, "gespmm")
    rows = [
        records.measurement(
            source=source, matrix="cora", matrix_hash=pattern, width=width, label=label, samples_us=[5.0],
            status=Status.OK if pattern else Status.UNSUPPORTED, started_at=records.START + timedelta(seconds=second),
        )
        for second, (source, pattern, width, label) in enumerate(known + refused)
    ]  # fmt: skip
    once = each_problem_once(load_records([write(rows)])).set_index(["label", "width", "pattern"])
    assert once.loc[("gespmm", 32, same), "started_at"] == rows[4].started_at
    assert once["matrix"].to_dict() == {
        ("gespmm", 32, same): "planetoid/cora",
        ("gespmm", 64, same): "planetoid/cora",
        ("gespmm", 128, same): "planetoid/cora",
        ("gespmm", 128, other): "twice/cora #222222",
        ("rowsplit", 32, same): "planetoid/cora",
        ("rowsplit", 64, ""): "planetoid/cora",
    }


def test_problems_of_rgms_that_differ_in_the_columns_of_x_are_all_kept() -> None:
    frame = current(load_records([Path(__file__).parents[3] / "report/reference/h200/sparsetir_fig23_sparse_conv"]))
    assert (frame["width_in"] != frame["width"]).any()
    assert len(each_problem_once(frame)) == frame["case_id"].nunique() == len(frame)
