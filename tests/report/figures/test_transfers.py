"""Figures of studies of moved models: their numbers, what they say of missing baselines, and text that stays apart."""

from __future__ import annotations

from typing import Any

import moved_fakes
import numpy as np
import pandas as pd
import pytest
from figure_texts import assert_readable

from spmark.impls.core.problem import Op
from spmark.report.analysis.methods import MovedFigure, known_methods
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN
from spmark.report.figures.transfers import (
    bars_of,
    each_matrix,
    method_bars,
    moved_plots,
    over_sizes,
    sizes_of,
    training_curves,
    undrawn,
)

MEAN_GAIN = float((0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6)).mean())
FIGURES = {figure.name: figure for figure in known_methods().figures}


def figure(part: str) -> MovedFigure:
    (name,) = [name for name in FIGURES if part in name]
    return FIGURES[name]


def values(data: pd.DataFrame) -> dict[tuple[str, str], float]:
    return {(row["method"], row["label"]): float(row["value"]) for row in data.to_dict("records")}


def test_a_whole_study_fills_every_figure(moved: Any) -> None:
    whole = moved(*moved_fakes.study())
    assert len(moved_plots(whole)) == len(FIGURES)
    assert undrawn(whole) == []


def test_bars_are_the_methods_and_the_baselines(moved: Any) -> None:
    data = bars_of(moved(*moved_fakes.results(noise=0)), figure("ablation"))
    found = values(data)
    assert list(dict.fromkeys(data["method"])) == [
        "no_encoder", "no_mapper", "no_featuriser", "dash", "random5", "target_best", "rule_ck", "lightgbm",
        "lightgbm_source",
    ]  # fmt: skip
    assert found["dash", "first choice"] == pytest.approx(np.exp(0.9 * MEAN_GAIN))
    assert found["no_mapper", "best of five"] == pytest.approx(np.exp(0.76 * MEAN_GAIN))
    assert ("rule_ck", "best of five") not in found
    assert ("random5", "first choice") not in found
    assert data["optimum_speedup"].unique().tolist() == pytest.approx([np.exp(MEAN_GAIN)])
    plot = method_bars(moved(*moved_fakes.results(noise=0)), figure("ablation"))
    assert plot.figure.axes[0].get_title(loc="left").endswith(f"optimum {np.exp(MEAN_GAIN):.3g}×")
    assert "nothing is compared" not in plot.caption


def test_a_missing_baseline_is_a_cross_and_the_caption_says_so(moved: Any) -> None:
    methods = {name: of for name, of in (moved_fakes.MODELS | moved_fakes.BASELINES).items() if name != "lightgbm"}
    plot = method_bars(moved(*moved_fakes.results(methods, seeds=(0,), target="spade_sim")), figure("fig4"))
    missing = plot.data[plot.data["method"] == "lightgbm"]
    assert len(missing) == 2 and missing["value"].isna().all()
    assert "Without these baselines nothing is compared for spmm, cpu to spade_sim (simulated): LightGBM." in (
        plot.caption
    )
    assert "What has one seed has no interval." in plot.caption
    assert f"Simulated times: {moved_fakes.SIMULATED}." in plot.caption
    assert "rule_ck" not in set(plot.data["method"])


def test_matrices_stand_in_the_order_of_the_subjects_speedup(moved: Any) -> None:
    plot = each_matrix(moved(*moved_fakes.results(noise=0)), figure("per_matrix"))
    own = plot.data[plot.data["label"] == "dash"]
    gains = np.sort(0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6))
    assert own["rank"].tolist() == [1, 2, 3, 4, 5, 6]
    assert own["speedup"].tolist() == pytest.approx(np.exp(0.9 * gains).tolist())
    assert own["optimum_speedup"].tolist() == pytest.approx(np.exp(gains).tolist())
    assert set(plot.data["label"]) == {"dash", *moved_fakes.BASELINES}
    random = plot.data[plot.data["label"] == "random5"]["speedup"]
    assert random.tolist() == pytest.approx(np.exp(0.52 * gains).tolist())


def test_curves_have_both_phases_and_ceilings(moved: Any) -> None:
    plot = training_curves(moved(*moved_fakes.results(), *moved_fakes.curves()), figure("training"))
    assert [ax.get_title(loc="left").split("\n")[1] for ax in plot.figure.axes] == ["pre-training", "fine-tuning"]
    flat = [line for line in plot.figure.axes[1].lines if line.get_linestyle() == ":"]
    assert [float(np.asarray(line.get_ydata())[0]) for line in flat] == pytest.approx([0.95, 0.9])
    assert "fine-tuning: held-out OPA goes from 0.54 to 0.78, held-out tau goes from 0.08 to 0.56." in plot.finding


def test_sizes_are_curves_beside_level_lines(moved: Any) -> None:
    facts = moved(*moved_fakes.results(noise=0), *(
        fact for more in moved_fakes.sizes().values() for fact in moved_fakes.results(more, seeds=(0, 1), noise=0)
    ))  # fmt: skip
    data = sizes_of(facts, figure("finetune"))
    dash = data[data["method"] == "dash"]
    assert dash["matrices_used"].tolist() == [1, 5, 10]
    assert dash["value"].tolist() == pytest.approx(np.exp(np.array([0.7, 0.9, 0.95]) * MEAN_GAIN).tolist())
    assert data[data["method"] == "scratch"]["matrices_used"].tolist() == [1, 5, 10]
    level = data[data["matrices_used"] == 0].set_index("method")["value"]
    assert set(level.index) == {"zero_shot", *moved_fakes.BASELINES} - {"lightgbm"}, "which is a curve here"
    assert level["zero_shot"] == pytest.approx(np.exp(-0.5 * MEAN_GAIN))
    source = sizes_of(facts, figure("negative"))
    assert source[source["method"] == "dash"]["matrices_used"].tolist() == [2, 8]
    plot = over_sizes(facts, figure("overhead"))
    assert set(plot.data.loc[plot.data["matrices_used"] > 0, "method"]) == {"scratch", "lightgbm"}
    assert "target matrices" in plot.figure.axes[0].get_xlabel()
    first, last = (np.exp(gain * MEAN_GAIN) for gain in (0.7, 0.95))
    said = f"DASH goes from {first:.2f}× with 1 target matrix to {last:.2f}× with 10, "
    assert said in over_sizes(facts, figure("finetune")).finding
    findings = [over_sizes(facts, figure(name)).finding for name in ("overhead", "negative", "finetune")]
    assert len(set(findings)) == 3
    assert f"DASH at {np.exp(0.9 * MEAN_GAIN):.2f}×" in findings[0]


@pytest.mark.full
@pytest.mark.parametrize("width_in", [WIDTH_IN, COLUMN_IN], ids=["wide", "narrow"])
def test_no_text_runs_into_other_text(moved: Any, width_in: float) -> None:
    whole = moved(*moved_fakes.study(("cuda",), (Op.SPMM, Op.SDDMM)))
    for plot in moved_plots(whole):
        drawn = plot(width_in)
        assert_readable(drawn.figure)
        assert drawn.heading and drawn.finding.endswith("."), drawn.name
