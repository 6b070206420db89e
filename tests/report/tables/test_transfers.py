"""Tables of studies of moved models against a hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import moved_fakes
import numpy as np
import pandas as pd
import pytest

from spmark.impls.core.problem import Op
from spmark.report.analysis.methods import known_methods
from spmark.report.tables.table import heading
from spmark.report.tables.transfers import compared_table, cost_table, gain_table, size_table
from spmark.report.transfers import load_transfers

MEAN_GAIN = float((0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6)).mean())
METHODS = known_methods()


def test_gains_have_the_best_first_and_panels_in_order(moved: Any) -> None:
    frame = gain_table(moved(*moved_fakes.study()), METHODS).frame
    spmm = frame[(frame["op"] == "spmm") & (frame["target"] == "cuda")]
    assert spmm["method"].iloc[0] == "DASH"
    assert spmm["top1_speedup"].is_monotonic_decreasing
    assert list(frame["op"].drop_duplicates()) == ["spmm", "sddmm"]
    assert list(frame["machine"].drop_duplicates()) == ["test-gpu", "simulated"]
    assert {"top1_speedup_low", "optimum_speedup_high", "tau_score_low"} <= set(frame)


def test_comparisons_are_named(moved: Any) -> None:
    frame = compared_table(moved(*moved_fakes.results(noise=0)), METHODS).frame
    row = frame.set_index(["baseline", "choice"]).loc[("LightGBM", "best of five")]
    assert row["ahead_speedup"] == pytest.approx(np.exp(0.12 * MEAN_GAIN))
    assert row["ahead"] == "yes"


def test_sizes_have_samples_and_the_papers_costs(moved: Any) -> None:
    facts = [*moved_fakes.results(target="spade_sim", noise=0)]
    facts += moved_fakes.results({"dash": (0.6, 2, 5), "scratch": (0.7, 0, 10)}, target="spade_sim", noise=0)
    frame = size_table(moved(*facts), METHODS).frame
    sizes = frame.set_index(["method", "source_matrices", "target_matrices"])
    whole = sizes.loc[("DASH", 8.0, 5.0)]
    assert (whole["source_samples"], whole["target_samples"]) == (800, 500)
    assert whole["data_cost_score"] == pytest.approx((800 + 500 * 1000) / 1e6)
    assert sizes.loc[("DASH", 2.0, 5.0), "top1_share"] == pytest.approx(np.exp(-0.4 * MEAN_GAIN))
    assert sizes.loc[("no transfer", 0.0, 10.0), "source_samples"] == 0
    optimum = frame.iloc[-1]
    assert (optimum["method"], optimum["top1_share"], optimum["ape_share"]) == ("optimum", 1.0, 0.0)
    assert optimum["top1_speedup"] == pytest.approx(np.exp(MEAN_GAIN))
    assert pd.isna(optimum["source_matrices"])
    assert "WACO, mapped features" not in set(frame["method"])


def test_measured_targets_have_no_assumed_cost(moved: Any) -> None:
    assert size_table(moved(*moved_fakes.results()), METHODS).frame["data_cost_score"].isna().all()


def test_costs_are_means_over_seeds(tmp_path: Path) -> None:
    facts = load_transfers([moved_fakes.write(tmp_path, list(moved_fakes.costs(op=Op.SDDMM)))])
    frame = cost_table(facts.costs, METHODS).frame.set_index("what")
    assert frame.loc["pretrain", "spent_s"] == pytest.approx(60.5)
    assert (frame.loc["finetune", "configs"], frame.loc["finetune", "seeds"]) == (500, 2)
    assert heading("spent_s") == "spent (s)"
