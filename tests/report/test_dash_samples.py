"""The numbers of report/reference/dash/README.md are what its samples say."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from spmark.impls.dash.study.judging import Halves
from spmark.impls.study.collected import CollectedRow, read_collected
from spmark.report.derive.statistics import mean_of

FOLDER = Path(__file__).parents[2] / "report/reference/dash"
README = (FOLDER / "README.md").read_text()
Key = tuple[str, str, str]


@pytest.fixture(scope="module")
def rows() -> list[CollectedRow]:
    return [row for name in ("cpu", "cuda", "spade_sim") for row in read_collected([FOLDER / f"{name}.jsonl.gz"])]


def gains(rows: list[CollectedRow]) -> dict[Key, list[float]]:
    """Give the best over the default of each problem, by platform, kind of matrix and operator."""
    found = defaultdict(list)
    for row in rows:
        halves = Halves.of(row)
        gain = halves.valued_by_s[halves.default] / halves.optimum
        kind = "seeded" if row.spec["source"] == "seeded" else "other"
        found[row.platform, kind, str(row.op)].append(float(gain))
    return found


@pytest.mark.parametrize(
    ("line", "platform", "kind"),
    [
        ("`cuda`, 60 evaluation matrices", "cuda", "other"),
        ("`cuda`, 5 target matrices", "cuda", "seeded"),
        ("`spade_sim`, 60 evaluation matrices", "spade_sim", "other"),
        ("`spade_sim`, 5 target matrices", "spade_sim", "seeded"),
        ("`cpu`, source matrices of `seeded`", "cpu", "seeded"),
        ("`cpu`, source matrices of `patterns` and `rmat`", "cpu", "other"),
    ],
)
def test_the_gains_are_those_of_the_samples(rows: list[CollectedRow], line: str, platform: str, kind: str) -> None:
    said = re.search(rf"^\| {line} \| ([\d.]+)(?: \((\d+)\))? \| ([\d.]+)(?: \((\d+)\))? \|$", README, re.MULTILINE)
    assert said is not None
    for place, op in ((1, "spmm"), (3, "sddmm")):
        of = gains(rows)[platform, kind, op]
        assert f"{mean_of(of):.3f}" == said[place]
        assert said[place + 1] in {None, str(len(of))}


def test_the_configs_that_failed_are_counted(rows: list[CollectedRow]) -> None:
    failed = {
        name: sum(bool(one.reason) for row in rows if row.platform == name for one in row.configs)
        for name in ("cpu", "cuda")
    }
    assert failed["cuda"] == 0
    assert f"{failed['cpu']:,} of" in README
