"""What building costs, and after how many runs building has paid off, by hand."""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd

from spmark.report.figures.costs import _most_paid_off, break_even, paid_off


def test_break_even_counts(derived):
    data = break_even(derived, "cusparse_best").data.set_index(["label", "matrix", "width"]).sort_index()
    # 10 ms of search and conversion over 10, 30 and 8 us saved by each run.
    assert data.loc["sparsetir", "break_even_runs"].tolist() == [1000, 334, 1250]
    assert data.loc["gespmm", "break_even_runs"].to_dict()[("ogb/large", 32)] == inf
    assert data.loc["gespmm", "break_even_runs"].to_dict()[("ogb/small", 32)] == 0
    assert data.loc[("gespmm", "ogb/small", 32), "break_even_runs_with_compile"] == 100_000


def test_of_equal_shares_the_fewer_runs_lead():
    """Two labels pay off in all cases, one after more runs; a third one costs nothing and pays off in half of them."""
    runs = {"late": [40.0, 20.0], "soon": [2.0, 1.0], "free": [0.0, inf], "never": [inf, inf]}
    rows = pd.DataFrame(
        {"op": "spmm", "dtype": "float32", "matrix": f"m{at}", "width": 32, "seed": 0, "label": label,
         "break_even_runs": count}
        for label, counts in runs.items() for at, count in enumerate(counts)
    )  # fmt: skip

    def said(*labels):
        return _most_paid_off(rows[rows["label"].isin(labels)])

    assert said("late", "soon", "free").text == (
        "spmm, float32: soon pays off in 100% of the cases, half of these within 2 runs, and late pays off in 100% of "
        "the cases, half of these within 30 runs."
    )
    assert said("late", "soon", "free").labels == ("soon", "late")
    assert said("free", "never").text == (
        "spmm, float32: free pays off in 50% of the cases, half of these within 0 runs, and never pays off in 0% "
        "of the cases."
    )


def test_steps_of_what_has_paid_off():
    runs, share = paid_off(np.array([0.0, 10.0, inf, 10.0]), 1000.0)
    assert runs.tolist() == [1, 10, 1000]
    assert share.tolist() == [0.25, 0.75, 0.75]
    runs, share = paid_off(np.array([inf]), 1000.0)
    assert (runs.tolist(), share.tolist()) == ([1, 1000], [0, 0])
