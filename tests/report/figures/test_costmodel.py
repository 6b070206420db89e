"""The figure of a cost model, from records with round numbers."""

from __future__ import annotations

import pandas as pd
import pytest
from figure_texts import assert_readable

from spmark.records.schema import ProblemFacts
from spmark.report.analysis.cases import derive
from spmark.report.figures.predictions import cost_model, cost_model_table, least, priced
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN
from spmark.report.records import load_records

# Cost and time by matrix and width.
CASES = {
    ("small", 8): (9.0, 4.0),
    ("small", 16): (5.0, 3.0),
    ("small", 32): (6.0, 2.0),
    ("large", 8): (1.0, 9.0),
    ("large", 16): (2.0, 8.0),
    ("large", 64): (3.0, 6.0),
    ("lone", 8): (3.0, 6.0),
}


@pytest.fixture
def derived(records, write):
    rows = []
    for (matrix, max_width), (cost, us) in CASES.items():
        nnz = {"small": 10, "large": 1000, "lone": 5}[matrix]
        facts = ProblemFacts(num_rows=9, num_cols=9, nnz=nnz, longest_row=9, flops=10, compulsory_bytes=10)
        rows.append(
            records.measurement(
                implementation="liteform", label=f"width {max_width}", matrix=matrix, problem=facts,
                matrix_hash=f"{nnz:064x}", requested={"max_width": max_width, "format": "cell"},
                config={"max_width": max_width, "cost": cost}, samples_us=[us] * 8,
            )
        )  # fmt: skip
    rows.append(
        records.measurement(
            implementation="liteform", matrix="small", matrix_hash=f"{10:064x}", config={"max_width": 4, "cost": 0.1},
            samples_us=[1.0] * 8,
        )
    )  # fmt: skip
    return derive(load_records([write(rows)]), None)


def test_the_least_by_cost_and_by_time(derived) -> None:
    ends = least(priced(derived)).set_index("matrix")
    assert ends.loc["ogb/small", ["by_cost", "by_time", "steps"]].tolist() == [16, 32, -1]
    assert ends.loc["ogb/small", "regret"] == pytest.approx(0.5)
    assert ends.loc["ogb/large", ["by_cost", "by_time", "steps"]].tolist() == [8, 64, -3]


def test_the_finding_counts_neighbours(derived) -> None:
    plot = cost_model(derived)
    assert "neighbours in 50% of 2 cases" in plot.finding
    assert "50.0% longer" in plot.finding
    assert len(plot.data) == 6


@pytest.mark.parametrize("width_in", [WIDTH_IN, COLUMN_IN])
def test_texts_stay_apart(derived, width_in: float) -> None:
    long = derived.assign(
        matrix=derived["matrix"] + "_with_a_name_that_no_panel_holds",
        requested=[{**(requested or {}), "cost": "paper"} for requested in derived["requested"]],
    )
    assert_readable(cost_model(pd.concat([derived, long], ignore_index=True), width_in).figure)


def test_the_table_says_which_are_neighbours(derived) -> None:
    frame = cost_model_table(derived).frame.set_index("matrix")
    assert frame["equal or neighbours"].to_dict() == {"ogb/small": "yes", "ogb/large": "no"}
    assert cost_model_table(derived[derived["matrix"] == "ogb/lone"]).frame.empty


def test_each_cost_model_has_panels_and_a_row_of_its_own(derived) -> None:
    other = derived.assign(
        requested=[{**(requested or {}), "cost": "paper"} for requested in derived["requested"]],
        median_us=1 / derived["median_us"],
    )
    both = pd.concat([derived, other], ignore_index=True)
    table = cost_model_table(both).frame
    assert table.groupby("cost_by")["regret_share"].count().to_dict() == {"default": 2, "paper": 2}
    small = table[(table["matrix"] == "ogb/small") & (table["cost_by"] == "paper")]
    assert small[["by_cost", "by_time"]].to_numpy().tolist() == [[16, 8]]
    plot = cost_model(both)
    assert len(plot.figure.axes) == 4
    assert "With cost: paper the widths" in plot.finding
    assert len(plot.data) == 12
