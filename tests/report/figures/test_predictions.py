"""Predicted beside measured times of what searches saw, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from figure_texts import assert_readable

from spmark.report.analysis.tiles import TileAgreement
from spmark.report.figures.predictions import agreement, predicted, predicted_times, tile_times, tiles_held_out
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN


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


def test_predicted_times_are_drawn_with_their_agreement(seen):
    plot = predicted_times(predicted(seen), seen)
    assert "over 7 plans" in plot.finding
    assert sorted(plot.data["measured_us"]) == [4.5, 6, 9, 10, 30, 50, 60]


@pytest.mark.parametrize("width_in", [WIDTH_IN, COLUMN_IN])
def test_texts_stay_apart(seen, width_in):
    more = [seen.assign(op=op, label=f"{op}_with_a_long_name") for op in ("sddmm", "sddmm-scaled")]
    every = pd.concat([seen, *more], ignore_index=True)
    assert_readable(predicted_times(predicted(every), every, width_in).figure)


def agreement_of(operator: str, dtype: str, pairs: list[tuple[float, float]]) -> TileAgreement:
    row = {"operator": operator, "dtype": dtype, "tiles held out": 3, "Pearson": 0.9, "RMSE, us": 0.1}
    return TileAgreement.model_validate(row | {"predicted and measured, us": pairs})


def test_single_tiles_are_those_of_the_plans_operator_and_dtype(seen):
    plans = predicted(seen)
    (panel,) = set(zip(plans["op"], plans["dtype"], strict=True))
    pairs = [(1.0, 1.1), (2.0, 1.9), (4.0, 4.4)]
    ours, other = agreement_of(*panel, pairs), agreement_of("sddmm", "float16", [(9.0, 9.0), (8.0, 8.0)])
    assert panel != ("sddmm", "float16")
    tiles = tiles_held_out(plans, [ours, other])
    assert list(zip(tiles["predicted_us"], tiles["measured_us"], strict=True)) == pairs
    assert set(tiles["implementation"]) == set(plans["implementation"])
    plot = tile_times(tiles)
    x, y = np.array(pairs).T
    assert f"{np.corrcoef(x, y)[0, 1]:.3f} and " in plot.finding
    assert plot.data["measured_us"].tolist() == [1.1, 1.9, 4.4]
