"""The table of systems: hand-made means, variants left out, in the order asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from spmark.impls.core.record import Baseline
from spmark.report.derive.cases import derive
from spmark.report.load.records import load_records
from spmark.report.tables.systems import systems_table

SYSTEMS = {"stile": "STile", "sparsetir": "SparseTIR", "dash": "DASH"}
# Matrix: times in µs by label; the baseline takes 10 µs.
TIMES = {
    "a": {"sparsetir": 5.0, "stile": 2.5, "gespmm": 10.0, "stile_other": 1.25},
    "b": {"sparsetir": 20.0, "stile": 10.0, "gespmm": 5.0},
}


def test_a_system_has_its_means_over_the_baseline_and_over_the_best_other(
    records: ModuleType, write: Callable[..., Path]
) -> None:
    base = Baseline(implementation="cusparse_best", config={}, samples_us=[10.0] * 8)
    rows = [
        records.measurement(
            implementation=label.removesuffix("_other"), label=label, matrix=matrix, matrix_hash=f"{i:064x}",
            baseline=base, samples_us=[us] * 8,
        )
        for i, (matrix, times) in enumerate(TIMES.items())
        for label, us in times.items()
    ]  # fmt: skip
    table = systems_table(derive(load_records([write(rows)]), "cusparse_best"), "cusparse_best", SYSTEMS)
    stile, sparsetir = table.frame.to_dict("records")
    assert (stile["system"], sparsetir["system"]) == ("STile", "SparseTIR")
    assert (stile["op"], stile["dtype"], stile["matrices"], stile["cases"]) == ("spmm", "float32", 2, 2)
    assert stile["speedup"] == pytest.approx((4 * 1) ** 0.5)
    # Over SparseTIR on a, and over gespmm on b: another label of STile is no other implementation.
    assert stile["over_best_speedup"] == pytest.approx((5 / 2.5 * 5 / 10) ** 0.5)
    assert stile["fastest_share"] == 0.5
    assert sparsetir["over_best_speedup"] == pytest.approx((1.25 / 5 * 5 / 20) ** 0.5)
    assert "over cusparse_best" in table.note


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
