"""Claims about moved models: what a study answers, with what reservation, and what it cannot answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import moved_fakes
import numpy as np
import pandas as pd
import pytest

from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import Op
from spmark.impls.table import PLATFORMS
from spmark.report.analysis.methods import known_methods
from spmark.report.analysis.transfers import derive_moved
from spmark.report.claims.published import PAPERS, TRANSFERS, load_published, parse
from spmark.report.claims.scorecard import Verdict, scorecard, scorecard_tables
from spmark.report.claims.transfers import DEFAULT, known_metric
from spmark.report.records import load_records
from spmark.report.transfers import load_transfers
from spmark.studies.transferfacts import TransferFact

GAINS = 0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6)
MEAN_GAIN = float(GAINS.mean())
ASKED = [claim for paper in PAPERS for claim in load_published(paper).claims if claim.measure.statistic in TRANSFERS]
CLAIM = """
schema: 1
paper: dash
title: t
citation: c
sources: [s]
claims:
  - id: one
    where: section 1
    what: speed
    value: 2.0
    unit: x
    gpu: A100
    conditions: {op: spmm}
    measure: {statistic: transfer_speedup, of: dash, over: default, target: cuda, metric: top1}
"""


@pytest.fixture
def cards(tmp_path: Path) -> Any:
    def make(*facts: TransferFact) -> pd.DataFrame:
        loaded = load_transfers([moved_fakes.write(tmp_path, facts)])
        moved = derive_moved(loaded.results, loaded.curves, known_methods())
        return scorecard(load_records([]), ["dash"], moved).set_index("claim")

    return make


@pytest.mark.parametrize("claim", ASKED, ids=lambda claim: claim.id)
def test_claims_ask_for_what_a_study_has(claim: Any) -> None:
    measure = claim.measure
    assert known_metric(measure)
    assert measure.target in PLATFORMS
    assert {measure.of, measure.over} <= {"", DEFAULT, *known_methods().methods}
    assert measure.differs, "no study repeats the paper's experiment"
    assert measure.metric in ("opa", "tau") or claim.unit == ("x" if measure.over == DEFAULT else "%")


def test_speedups_on_a_gpu_are_answered(cards: Any) -> None:
    found = cards(*moved_fakes.results(noise=0))
    top1, most = found.loc["gpu-spmm-top1"], found.loc["gpu-spmm-max"]
    assert top1["ours_value"] == pytest.approx(np.exp(0.9 * MEAN_GAIN))
    assert top1["ours_low"] == pytest.approx(top1["ours_high"])
    assert "spmm, cpu to cuda (test-gpu), 8 and 5 matrices to learn from, 3 seeds, 6 matrices judged" in top1["why"]
    assert "which are not named" in top1["why"]
    assert most["ours_value"] == pytest.approx(np.exp(0.96 * GAINS.max()))
    assert found.loc["gpu-spmm-optimal", "ours_value"] == pytest.approx(np.exp(MEAN_GAIN))
    assert found.loc["gpu-sddmm-top1", "verdict"] == Verdict.NOT_RUN.value
    assert found.loc["gpu-sddmm-top1", "why"] == "no result of dash on cuda"


def test_the_simulator_answers_shares_and_no_speedups(cards: Any) -> None:
    found = cards(*moved_fakes.results(target="spade_sim", noise=0))
    share = found.loc["spade-spmm-top1-share"]
    assert share["ours_value"] == pytest.approx(100 * np.exp(-0.1 * MEAN_GAIN))
    assert share["verdict"] == Verdict.NO_VERDICT.value, "another simulator proves nothing about the paper's"
    assert "our simulator of a tile accelerator" in share["why"] and "(simulated)" in share["why"]
    assert found.loc["spade-over-waco-fm", "ours_value"] == pytest.approx(100 * (np.exp(0.5 * MEAN_GAIN) - 1))
    assert found.loc["kendall-tau", "ours_value"] == pytest.approx(0.72)
    assert found.loc["tl5-ape-text", "ours_value"] == pytest.approx(100 * (np.exp(0.1 * GAINS) - 1).mean())
    for claim in ("spade-spmm-top1", "spade-sddmm-max", "table2.zero-shot.speed-up-of-the-first-choice"):
        assert found.loc[claim, "verdict"] == Verdict.NOT_RUN.value
        assert "simulator is not public" in found.loc[claim, "why"]


def test_sizes_are_those_of_the_claim(cards: Any) -> None:
    methods = {"dash": (0.9, 100, 5), "scratch": (0.5, 0, 5), "zero_shot": (-0.5, 100, 0)}
    twenty = moved_fakes.results({"dash": (0.6, 20, 5)}, target="spade_sim", noise=0)
    found = cards(*moved_fakes.results(methods, target="spade_sim", noise=0), *twenty)
    loss = "loss-against-the-optimum"
    ours = {row: found.loc[f"table2.{row}.{loss}", "ours_value"] for row in ("transfer-to-5-matrices", "zero-shot")}
    assert ours["zero-shot"] == pytest.approx(100 * (np.exp(1.5 * GAINS) - 1).mean())
    assert ours["transfer-to-5-matrices"] == pytest.approx(100 * (np.exp(0.1 * GAINS) - 1).mean())
    assert found.loc[f"table2.transfer-from-20-matrices.{loss}", "ours_value"] == pytest.approx(
        100 * (np.exp(0.4 * GAINS) - 1).mean()
    )
    assert found.loc[f"table2.transfer-from-500-matrices.{loss}", "why"] == (
        "no result of dash on spade_sim with 500 source matrices and 5 target matrices"
    )
    assert found.loc["spade-over-waco-fm", "why"] == "no result of waco_fm on spade_sim"


def test_without_a_study_the_reason_is_told() -> None:
    found = scorecard(load_records([]), ["dash"]).set_index("claim")
    assert found.loc["opa", "why"] == "no study of moved cost models among these results"


def test_a_study_alone_has_a_scorecard(tmp_path: Path) -> None:
    loaded = load_transfers([moved_fakes.write(tmp_path, list(moved_fakes.results(op=Op.SDDMM)))])
    moved = derive_moved(loaded.results, loaded.curves, known_methods())
    _, claims = scorecard_tables(load_records([]), ["dash"], moved)
    assert claims.frame["claim"].tolist()[0].startswith("gpu-sddmm")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", target: cuda", "", "target: expected a value"),
        (", metric: top1", "", "metric"),
        (", over: default", "", "'of' and 'over'"),
        ("transfer_speedup", "median_ms", "expected"),
    ],
)
def test_a_measure_without_its_parts_is_refused(old: str, new: str, said: str) -> None:
    assert parse(CLAIM, "x.yaml").claims[0].measure.target == "cuda"
    with pytest.raises(RecordError, match=said):
        parse(CLAIM.replace(old, new), "x.yaml")
