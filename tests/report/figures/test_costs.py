"""What building costs, and after how many runs building has paid off, by hand."""

from __future__ import annotations

from math import inf

import pandas as pd

from spmark.report.figures.costs import _soonest, break_even
from spmark.report.figures.style import LOOKS


def test_break_even_counts(derived):
    data = break_even(derived, "cusparse_best").data.set_index(["label", "matrix", "width"]).sort_index()
    # 10 ms of search and conversion over 10, 30 and 8 us saved by each run.
    assert data.loc["sparsetir", "break_even_runs"].tolist() == [1000, 334, 1250]
    assert data.loc["gespmm", "break_even_runs"].to_dict()[("ogb/large", 32)] == inf
    assert data.loc["gespmm", "break_even_runs"].to_dict()[("ogb/small", 32)] == 0
    assert data.loc[("gespmm", "ogb/small", 32), "break_even_runs_with_compile"] == 100_000


def test_half_of_the_cases_have_paid_off_after_the_median():
    runs = {"late": [40.0, 20.0, 90.0], "soon": [3.0, 1.0, 2.0], "never": [inf, inf, 0.0]}
    rows = pd.DataFrame(
        {"op": "spmm", "dtype": "float32", "matrix": f"m{at}", "width": 32, "seed": 0, "label": label,
         "break_even_runs": count}
        for label, counts in runs.items() for at, count in enumerate(counts)
    )  # fmt: skip
    found = _soonest(rows)
    assert found.text == "spmm, float32: half of the cases have paid off with soon after 2 runs, late after 40 runs."
    assert found.labels == ("soon", "late")
    assert _soonest(rows[rows["label"] == "never"]).text.endswith("with never never.")


def test_the_curve_is_the_share_of_cases_that_have_paid_off(derived):
    (ax,) = break_even(derived, "cusparse_best").figure.axes
    curve = next(line for line in ax.lines if line.get_color() == LOOKS["gespmm"].colour)
    steps = dict(zip(*curve.get_data(), strict=True))
    # Without compiling, three of four cases pay off at once and one never does.
    assert steps[1.0] == 0.75
    assert max(share for at, share in steps.items() if at <= ax.get_xlim()[1]) == 0.75
