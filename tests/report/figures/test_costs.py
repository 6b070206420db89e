"""What building costs, and after how many runs building has paid off, by hand."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from spmark.report.figures.costs import break_even, paid_off, search_time, searched


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
