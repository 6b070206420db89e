"""The table of results in impls/dash/README.md is what the study's facts say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spmark.report.analysis.cases import PROBLEM, derive, spent_s
from spmark.report.analysis.statistics import mean_of
from spmark.report.records import current, load_records
from spmark.report.transfers import load_transfers

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SECTION, SIZES = (ROOT / "impls/dash/README.md").read_text().split("## Results")[1].split("### ")[:2]
COLUMNS = [(target, op) for target in ("cuda", "spade_sim") for op in ("spmm", "sddmm")]
CELL = re.compile(r"([\d.]+) / ([\d.]+) \((\d)\)")


@pytest.fixture(scope="module")
def of_sizes() -> pd.DataFrame:
    """Give the results of the whole source, or of methods that do not see it."""
    found = load_transfers([ROOT / "report/reference/h200/dash_study"]).results
    return found[found.source_matrices.isin([0, 98, 99])]


@pytest.fixture(scope="module")
def results(of_sizes: pd.DataFrame) -> pd.DataFrame:
    """Give the results of the whole source and of the five target matrices, or of methods that do not see them."""
    return of_sizes[of_sizes.target_matrices.isin([0, 5])]


def cell(results: pd.DataFrame, method: str, target: str, op: str) -> str:
    of = results[(results.method == method) & (results.target == target) & (results.op == op)]
    if of.empty:
        return "-"
    assert len(of) == 60 * of.seed.nunique()
    first, five = (100 * np.exp(np.log(of.optimum_us / of[name]).mean()) for name in ("top1_us", "top5_us"))
    return f"{first:.1f} / {five:.1f} ({of.seed.nunique()})"


def test_every_cell_is_that_of_the_facts(results: pd.DataFrame) -> None:
    lines = re.findall(r"^\| `(\w+)` \| (.*) \|$", SECTION, re.MULTILINE)
    said = {method: cells.split(" | ") for method, cells in lines}
    assert set(said) == set(results.method)
    assert said == {method: [cell(results, method, *column) for column in COLUMNS] for method in said}


def test_every_size_is_that_of_the_facts(of_sizes: pd.DataFrame) -> None:
    (sizes,) = re.findall(r"^\| operator, method \| (.*) \|$", SIZES, re.MULTILINE)
    lines = re.findall(r"^\| (\w+), `(\w+)` \| (.*) \|$", SIZES, re.MULTILINE)
    assert len(lines) == 8
    for op, method, cells in lines:
        parts = (of_sizes[of_sizes.target_matrices == int(size.replace(",", ""))] for size in sizes.split(" | "))
        assert cells.split(" | ") == [cell(part, method, "spade_sim", op.lower()) for part in parts]


def test_the_front_page_has_the_same_shares(results: pd.DataFrame) -> None:
    front = (ROOT / "README.md").read_text()
    told = re.search(
        r"the kept config has (\d+) % \(SpMM\) and (\d+) % \(SDDMM\) of the best .*?LightGBM, trained on five matrices "
        r"of the GPU, has (\d+) % and (\d+) %\. With DASH's CPU samples too, LightGBM has (\d+) % and (\d+) %",
        " ".join(front.split()),
    )
    assert told is not None
    methods = ("dash", "lightgbm", "lightgbm_source")
    of = [cell(results, method, "cuda", op) for method in methods for op in ("spmm", "sddmm")]
    assert list(map(int, told.groups())) == [round(float(CELL.fullmatch(one)[2])) for one in of]


def test_the_front_page_has_the_search_of_hyb() -> None:
    told = re.search(
        r"has (\S+) of the speed of SparseTIR's full search, in (\S+) of the seconds",
        " ".join((ROOT / "README.md").read_text().split()),
    )
    assert told is not None
    derived = derive(current(load_records([ROOT / "report/reference/h200/dash_hyb_search"])), "cusparse_best")
    derived["chosen_s"] = spent_s(derived["phases_s"], ("features", "select", "search"))
    cases = derived.set_index([*PROBLEM, "label"])[["speedup", "chosen_s"]]
    model, full = (cases.xs(label, level="label") for label in ("dash_top5", "sparsetir"))
    ratios = (model / full.loc[model.index]).to_numpy(float)
    assert told.groups() == tuple(f"{mean_of(of):.2f}" for of in ratios.T)
