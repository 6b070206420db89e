"""The table of systems: hand-made means, variants left out, in the order asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from pathlib import Path
from types import ModuleType

import pytest

from spmark.records.schema import Baseline
from spmark.report.analysis.cases import derive
from spmark.report.records import load_records
from spmark.report.tables.table import Table
from spmark.report.tables.winners import systems_table

SYSTEMS = {"stile": "STile", "sparsetir": "SparseTIR", "dash": "DASH"}
# Matrix: times in µs by label; the baseline takes 10 µs.
TIMES = {
    "a": {"sparsetir": 5.0, "stile": 2.5, "gespmm": 10.0, "stile_other": 1.25},
    "b": {"sparsetir": 20.0, "stile": 10.0, "gespmm": 5.0},
}


@pytest.fixture
def table_of(records: ModuleType, write: Callable[..., Path]) -> Callable[[Mapping[str, Mapping[str, float]]], Table]:
    """Give the table of times in µs by matrix and label, each against a baseline of 10 µs."""

    def make(times_of: Mapping[str, Mapping[str, float]]) -> Table:
        base = Baseline(implementation="cusparse_best", config={}, samples_us=[10.0] * 8)
        rows = [
            records.measurement(
                implementation=label.removesuffix("_other"), label=label, matrix=matrix, matrix_hash=f"{i:064x}",
                baseline=base, samples_us=[us] * 8,
            )
            for i, (matrix, times) in enumerate(times_of.items())
            for label, us in times.items()
        ]  # fmt: skip
        return systems_table(derive(load_records([write(rows)]), "cusparse_best"), "cusparse_best", SYSTEMS)

    return make


def test_a_system_has_its_means_over_the_baseline_and_over_the_best_other(
    table_of: Callable[[Mapping[str, Mapping[str, float]]], Table],
) -> None:
    table = table_of(TIMES)
    stile, sparsetir = table.frame.to_dict("records")
    assert (stile["system"], sparsetir["system"]) == ("STile", "SparseTIR")
    assert (stile["op"], stile["dtype"], stile["matrices"], stile["cases"]) == ("spmm", "float32", 2, 2)
    assert stile["speedup"] == pytest.approx((4 * 1) ** 0.5)
    # Over SparseTIR on a, and over gespmm on b: another label of STile is no other implementation.
    assert stile["over_best_speedup"] == pytest.approx((5 / 2.5 * 5 / 10) ** 0.5)
    assert stile["fastest_share"] == 0.5
    assert sparsetir["over_best_speedup"] == pytest.approx((1.25 / 5 * 5 / 20) ** 0.5)
    assert "over cusparse_best (the fastest of cusparse's algorithms in the same run)" in table.note
    assert table.heading("speedup") == "speed-up over cusparse_best"


def test_a_system_that_mostly_met_libraries_alone_has_no_rank(
    table_of: Callable[[Mapping[str, Mapping[str, float]]], Table],
) -> None:
    alone = {name: {"stile": 5.0, "gespmm": 10.0} for name in ("c", "d", "e")}
    stile, sparsetir = table_of(TIMES | alone).frame.to_dict("records")
    assert (stile["cases"], stile["met_cases"]) == (5, 2)
    assert isnan(stile["over_best_speedup"])
    assert isnan(stile["fastest_share"])
    assert stile["speedup"] == pytest.approx((4 * 1 * 2**3) ** (1 / 5))
    # SparseTIR met STile on all of its cases, and keeps its rank.
    assert (sparsetir["cases"], sparsetir["met_cases"]) == (2, 2)
    assert sparsetir["fastest_share"] == 0


def test_a_system_without_its_own_label_stands_with_what_runs_by_default(
    records: ModuleType, write: Callable[..., Path]
) -> None:
    base = Baseline(implementation="cusparse_best", config={}, samples_us=[10.0] * 8)
    rows = [
        records.measurement(
            implementation=implementation, label=label, requested=requested, baseline=base, samples_us=[us] * 8
        )
        for implementation, label, requested, us in (
            ("dash", "dash_top5", {}, 5.0), ("dash", "dash_top1", {"top": 1}, 2.0), ("gespmm", "gespmm", {}, 10.0),
        )
    ]  # fmt: skip
    derived = derive(load_records([write(rows)]), "cusparse_best")
    (dash,) = systems_table(derived, "cusparse_best", SYSTEMS).frame.to_dict("records")
    assert (dash["system"], dash["speedup"], dash["cases"]) == ("DASH", pytest.approx(2.0), 1)
