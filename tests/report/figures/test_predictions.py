"""Predicted beside measured times of what searches saw, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.report.figures.predictions import agreement, predicted, predicted_times


def test_of_one_prediction_the_fastest_plan_counts(seen):
    plans = predicted(seen)
    assert len(plans) == 7
    assert plans.loc[plans["predicted_us"] == 4.0, "measured_us"].tolist() == [4.5]


def test_agreement_by_hand(seen):
    (row,) = agreement(predicted(seen)).to_dict("records")
    x, y = np.array([4.0, 9, 7, 11, 20, 40, 30]), np.array([4.5, 9, 6, 10, 30, 50, 60])
    assert (row["cases"], row["plans"]) == (3, 7)
    assert row["pearson_score"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert row["rmse_us"] == pytest.approx(np.sqrt(((x - y) ** 2).mean()))
    assert row["bias_ratio"] == pytest.approx(np.exp(np.log(x / y).mean()))


def test_two_plans_have_no_correlation(seen):
    assert agreement(predicted(seen[seen["matrix"] == "ogb/c"])).empty


def test_predicted_times_are_drawn_with_their_agreement(seen):
    plot = predicted_times(seen)
    assert "7 plans of 3 cases" in plot.caption
    assert sorted(plot.data["measured_us"]) == [4.5, 6, 9, 10, 30, 50, 60]
