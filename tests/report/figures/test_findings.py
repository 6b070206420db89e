"""Who is ahead in a figure, by hand."""

from __future__ import annotations

from math import nan

import numpy as np
import pandas as pd
import pytest

from spmark.report.analysis.cases import beside_baseline
from spmark.report.figures.findings import NO_LEAD, Finding, at_widths, lead_of, leading, said_seconds


def cases(*labels: str, **values: list[float]) -> pd.DataFrame:
    """Give a speed-up of each label on each matrix at J = 32; NaN is a failure."""
    rows = [
        {"op": "spmm", "dtype": "float32", "matrix": f"m{at}", "width": 32, "seed": 0, "label": label, "speedup": value}
        for label in labels or values
        for at, value in enumerate(values[label])
    ]
    return pd.DataFrame(rows)


def test_the_greatest_mean_leads_by_the_ratio_on_common_cases():
    rows = cases(a=[2, 8, nan], b=[1, 4, 100], c=[1, 1, 1])
    lead = lead_of(rows, "speedup")
    assert lead is not None
    assert lead.means == pytest.approx({"a": 4, "b": 2})
    assert lead.cases == 2
    assert (lead.factor.value, lead.factor.low, lead.factor.high) == pytest.approx((2, 2, 2))
    assert not lead.tied
    said = "a is fastest with 4.0×, before b with 2.0×, a factor of 2.00 (95 % interval 2.00 to 2.00), over 2 cases"
    finding = leading(rows, "speedup", "is fastest", lambda mean: f"{mean:.1f}×")
    assert finding == Finding(f"spmm, float32: {said}.", ("a", "b"))


def test_the_least_leads_where_less_is_better():
    lead = lead_of(cases(a=[2, 8], b=[1, 4]), "speedup", less=True)
    assert lead is not None
    assert list(lead.means) == ["b", "a"]
    assert lead.factor.value == pytest.approx(2)


def test_a_difference_within_the_interval_is_a_tie():
    rng = np.random.default_rng(1)
    base = rng.lognormal(0, 1, 20)
    rows = cases(a=list(base * rng.lognormal(0.01, 0.2, 20)), b=list(base))
    said = leading(rows, "speedup", "is fastest", lambda mean: f"{mean:.2f}×").text
    assert " tie, a factor of " in said
    lead = lead_of(cases(a=[1.5, 0.8] * 6, b=[1.0] * 12), "speedup")
    assert lead is not None
    assert lead.factor.low < 1 < round(lead.factor.value, 2)
    assert lead.tied
    # Matrices differ by far more than the two labels: what one gains on each of them is no tie.
    apart = cases(a=list(base * 1.05 * rng.lognormal(0, 0.01, 20)), b=list(base))
    said = leading(apart, "speedup", "is fastest", lambda mean: f"{mean:.2f}×").text
    assert said.startswith("spmm, float32: a is fastest with ")
    assert said.endswith(", over 20 cases.")


def test_equal_labels_tie_also_without_an_interval():
    said = leading(cases(a=[2.0], b=[2.0]), "speedup", "leads", str).text
    assert "tie" in said
    assert "interval" not in said


def test_who_solved_no_more_than_half_leads_nothing():
    lead = lead_of(cases(a=[1, 1, 1, 1], b=[9, nan, nan, nan]), "speedup")
    assert lead is not None
    assert (list(lead.means), lead.cases, lead.left_out) == (["a"], 4, ("b",))
    assert not lead.tied, "nobody is beside it"


def test_who_is_not_compared_is_named():
    rows = cases(a=[1, 1, 1, 1], b=[2, 2, 2, 2], c=[9, nan, nan, nan], d=[9, 9, nan, nan])
    finding = leading(rows, "speedup", "is fastest", str)
    assert finding.text.endswith("over 4 cases; c, d solved too few cases to be compared.")
    assert finding.labels == ("b", "a")
    more = cases(a=[1, 1, 1, 1], b=[2, 2, 2, 2], **{label: [9, nan, nan, nan] for label in "cdef"})
    told = leading(more, "speedup", "is fastest", str).text
    assert told.endswith("over 4 cases; 4 further labels solved too few cases to be compared.")


def test_a_lead_that_is_written_as_one_is_a_tie():
    base = np.array([1.0, 4.0, 2.0])
    said = leading(cases(a=list(base * 1.001), b=list(base)), "speedup", "is fastest", lambda mean: f"{mean:.2f}×").text
    assert " tie, a factor of 1.00 (95 % interval 1.00 to 1.00) apart" in said


def test_without_common_cases_none_leads():
    rows = cases(a=[1, 1, nan], b=[nan, 1, 1], c=[1, nan, 1])
    assert lead_of(rows, "speedup") is None
    assert leading(rows, "speedup", "is fastest", str) == Finding(f"spmm, float32: {NO_LEAD}.")
    assert at_widths(rows, "speedup") == Finding(f"{NO_LEAD}.")


def test_the_baseline_stands_beside_with_a_ratio_of_one():
    rows = beside_baseline(cases(a=[0.5, 0.5, nan]), "base", "speedup")
    assert rows.groupby("label")["speedup"].agg(list).to_dict() == {"a": [0.5, 0.5], "base": [1.0, 1.0]}
    lead = lead_of(rows, "speedup")
    assert lead is not None
    assert next(iter(lead.means)) == "base"


def test_each_width_has_a_leader():
    rows = cases(a=[2, 4], b=[1, 2])
    wide = cases(a=[1, 1], b=[4, 4.5]).assign(width=64)
    even = cases(a=[1, 1], b=[1, 1]).assign(width=128)
    said = "a is fastest at J = 32; b is fastest at J = 64; a and b tie at J = 128."
    assert at_widths(pd.concat([rows, wide, even]), "speedup") == Finding(said, ("a", "b"))
    # Two factors that differ as much say too little.
    assert "a and b tie" in at_widths(cases(a=[1, 1], b=[3, 6]), "speedup").text


def test_times_have_units():
    assert [said_seconds(time) for time in (3e-6, 1.25e-3, 0.5, 12.0, 4000)] == [
        "3 µs", "1.2 ms", "500 ms", "12 s", "4,000 s",
    ]  # fmt: skip
