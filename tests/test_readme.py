"""README and REPRODUCING: their tables are what the records say, links lead somewhere, and README stays short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts_by_name import load_script

from spmark.datasets.origins import other_ids
from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.operator import choose
from spmark.impls.runtime.device import shipped
from spmark.report.analysis.cases import derive
from spmark.report.analysis.means import mean_speedups
from spmark.report.claims.published import PAPERS, load_published
from spmark.report.claims.scorecard import ClaimKind, Verdict, scorecard, totals
from spmark.report.records import current, load_records
from spmark.report.site.transfers import moved_of
from spmark.report.transfers import load_transfers

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
REPRODUCING = (ROOT / "REPRODUCING.md").read_text()
RECORDS = ROOT / "report/reference/h200"
GRAPHS = {
    other: matrix.id
    for matrix in Sweep.load(ROOT / "datasets/sweeps/sparsetir_fig14_sddmm.yaml").matrices
    for other in (matrix.id, *other_ids(matrix))
}
"""Ids of graphs, by all of their ids: records have older ones."""
NOT_RECORDED = {"dgl/reddit", "ogb/ogbn-proteins"}
# `make docs` checks the links inside of the site; notes link figures outside of it.
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/notes/*.md"), *ROOT.glob("impls/*/README.md")])


@pytest.mark.full
def test_the_table_of_results_is_what_the_records_say() -> None:
    assert load_script("results_table").rewritten(README) == README


def test_the_example_also_runs_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_gpu(name: str | DeviceSpec) -> DeviceSpec:
        return shipped("nvidia-h200") if name == "auto" else device_of(name)

    device_of = choose.device_of
    monkeypatch.setattr(choose, "device_of", with_gpu)
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    np.testing.assert_allclose(names["c"], names["a"] @ names["b"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("sweep", "labels"),
    [
        ("stile_fig7_spmm", ("stile_paper", "stile_extended", "sparsetir_extended")),
        ("stile_fig9_sddmm", ("stile_paper", "stile_extended", "sparsetir_extended")),
        ("liteform_fig6_speedup", ("liteform_published", "liteform_extended", "sparsetir_extended")),
        ("lo_spmm_fig10_speedup", ("lo_spmm_paper", "lo_spmm")),
    ],
)
def test_intervals_of_reproducing_are_what_the_records_say(sweep: str, labels: tuple[str, ...]) -> None:
    derived = derive(current(load_records([RECORDS / sweep])), "cusparse_best")
    # Rows of "14 graphs" are of these graphs alone. Masks, stand-ins for layers and twins are of other kinds, but real
    # pruned layers have the kind and the source of eight of the graphs (pattern, mirror): only names tell them apart.
    graphs = derived[derived["matrix"].isin(GRAPHS)]
    assert set(graphs["matrix"].map(GRAPHS)) in (set(), set(GRAPHS.values()) - NOT_RECORDED)
    means = mean_speedups(graphs if len(graphs) else derived).set_index("label")
    (row,) = (line for line in REPRODUCING.splitlines() if line.startswith(f"| `{sweep}`"))
    assert ("14 graphs" in row) == bool(len(graphs))
    for label in labels:
        mean = means.loc[label]
        assert f"{mean['speedup']:.2f} [{mean['speedup_low']:.2f}, {mean['speedup_high']:.2f}]" in row


@pytest.mark.full
def test_verdicts_of_reproducing_are_the_scorecard_s() -> None:
    moved = moved_of(load_transfers([RECORDS / "dash_study"]), None)
    told = dict(re.findall(r"^\| ([\w-]+) \|((?: \d+ \|){7})$", REPRODUCING, re.MULTILINE))
    names = {paper: load_published(paper).title.split(":")[0] for paper in PAPERS}
    assert set(told) == set(names.values())
    equal = sizes = 0
    for paper in PAPERS:
        folders = [RECORDS / "dash_study"] if paper == "dash" else sorted(RECORDS.glob(f"{paper}_*"))
        folders += [RECORDS / "rgcn_inference"] * (paper == "sparsetir")
        card = totals(scorecard(load_records(folders, by_sweep=True), [paper], moved))
        of_kind: dict[Any, dict[Any, Any]] = card.set_index("kind").to_dict("index")
        gpu = of_kind[ClaimKind.GPU.value]
        missed = gpu[Verdict.SAME_DIRECTION.value] + gpu[Verdict.NOT_REPRODUCED.value]
        others = (gpu[verdict.value] for verdict in (Verdict.NEUTRAL, Verdict.NO_VERDICT, Verdict.NOT_RUN))
        cells = (gpu["counted"], gpu[Verdict.REPRODUCED.value], gpu[Verdict.DIRECTION.value], missed, *others)
        assert [int(cell) for cell in re.findall(r"\d+", told[names[paper]])] == list(cells), paper
        if ClaimKind.SIZES.value in of_kind:
            equal += of_kind[ClaimKind.SIZES.value][Verdict.REPRODUCED.value]
            sizes += of_kind[ClaimKind.SIZES.value]["counted"]
    assert f"{equal} of {sizes} are equal" in REPRODUCING


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: no file {target}"
