"""Pages of studies of moved models: what a reader is told first, and what a page of one paper keeps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import moved_fakes
import pandas as pd
import pytest

from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import Op
from spmark.report.site.model import PaperPage, Report
from spmark.report.site.site import write_report
from spmark.report.site.transfers import moved_of, studies_alone
from spmark.report.transfers import load_transfers
from spmark.suite.cli.report import draw


@pytest.fixture
def page(tmp_path: Path) -> Any:
    def make(*facts: Any, paper: PaperPage | None = None) -> Report | None:
        facts = load_transfers([moved_fakes.write(tmp_path / "study", facts)])
        moved = moved_of(facts, paper)
        return studies_alone(facts, moved, "spmark", [], frozenset()) if moved else None

    return make


def few(**changes: Any) -> Any:
    """Give results of the subject and its baselines alone."""
    return moved_fakes.results({"dash": (0.9, 8, 5), **moved_fakes.BASELINES} | changes.pop("methods", {}), **changes)


def test_the_first_sentence_says_where_the_subject_is_not_ahead(page: Any) -> None:
    better = few(methods={"lightgbm": (0.99, 0, 5)}, op=Op.SDDMM, noise=0)
    report = page(*few(noise=0), *better)
    assert report.notices[0].startswith("DASH is not ahead of LightGBM, first choice: 0.9")
    assert ", for sddmm, cpu to cuda (test-gpu). " in report.notices[0]
    assert "not clearly" not in report.notices[0]
    assert "with its interval over 6 matrices" in report.notices[0]
    assert report.notices[-1] == "DASH is ahead of every baseline for spmm, cpu to cuda (test-gpu)."


def test_what_is_missing_comes_before_what_is_ahead(page: Any) -> None:
    lacking = {name: of for name, of in moved_fakes.BASELINES.items() if name not in ("random5", "rule_ck")}
    report = page(*moved_fakes.results({"dash": (0.9, 8, 5), **lacking}), *few(target="spade_sim"))
    assert report.notices[0] == (
        "Nothing is compared for spmm, cpu to cuda (test-gpu) without results of random configs, rule for c and k."
    )
    assert report.notices[1] == "DASH is ahead of every baseline for spmm, cpu to spade_sim (simulated)."


def test_simulated_times_one_seed_and_no_gain_are_told(page: Any) -> None:
    (section,) = page(*few(target="spade_sim", seeds=(0,), gain=0.001)).sections
    text = " ".join(section.notices)
    assert f"Nothing was measured on spade_sim: {moved_fakes.SIMULATED}." in text
    assert "There is hardly anything to gain for spmm, cpu to spade_sim (simulated): the optimum is 1.001 times" in text
    assert (
        "One seed, and so no interval over seeds, for spmm, cpu to spade_sim (simulated): DASH, random configs" in text
    )
    assert "Without results to draw: dash_fig4_speedup, dash_fig6_training" in text


def test_the_section_has_what_made_the_study(page: Any) -> None:
    (section,) = page(moved_fakes.run(), *few(), *moved_fakes.costs()).sections
    facts = dict(section.facts)
    assert facts["Commands"] == "spmark study transfer dash --source cpu.jsonl"
    assert facts["Evaluation matrices"] == "6"
    assert facts["Packages"] == "spmark 0.1, torch 2.9"
    names = [block.name for block in section.blocks]
    assert names == [
        "dash_fig5_per_matrix", "moved-compared", "moved-gains", "dash_table2", "moved-costs", "verdicts", "claims"
    ]  # fmt: skip


def test_a_page_of_another_paper_leaves_studies_out(page: Any) -> None:
    assert page(*few(), paper=PaperPage("another")) is None
    assert page(*few(), paper=PaperPage("dash")).sections


def test_records_and_studies_share_a_page(records: Any, write: Any, tmp_path: Path) -> None:
    folder = write(records.sweep(matrices=("ogb/arxiv",), widths=(32,), samples=8))
    moved_fakes.write(folder, list(few()))
    done = write_report([folder], tmp_path / "site")
    assert not done.notices
    landing = done.index
    (page,) = (link for link in re.findall('href="(sweeps/[^"]*)"', landing.read_text()) if "moved" in link)
    text = (landing.parent / page).read_text()
    assert 'id="figure-dash_fig5_per_matrix"' in text
    assert "DASH is ahead" in text
    answered = pd.read_csv(landing.parent / "tables" / "test-gpu-claims.csv").set_index("claim")
    assert answered.loc["gpu-spmm-top1", "verdict"] != "not run"


def test_the_command_draws_a_study_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = moved_fakes.write(tmp_path / "study", list(few()))
    draw([folder], tmp_path / "site", baseline=None, title=None, paper=None, as_json=False)
    assert capsys.readouterr().out.startswith("DASH is ahead of every baseline")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="expected records, found none"):
        draw([tmp_path / "empty"], tmp_path / "site", baseline=None, title=None, paper=None, as_json=False)
