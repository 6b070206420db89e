"""The numbers of report/reference/dash/README.md are what its samples say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spmark.impls.core.problem import Op
from spmark.report.analysis.statistics import mean_of
from spmark.studies.collected import CollectedRow, read_collected

pytestmark = pytest.mark.full

FOLDER = Path(__file__).parents[2] / "report/reference/dash"
README = (FOLDER / "README.md").read_text()
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


def rows(name: str) -> list[CollectedRow]:
    return read_collected([FOLDER / f"{name}.jsonl.gz"])


def gain(row: CollectedRow) -> float:
    """Give the best over the default of one problem."""
    chosen_by, valued_by = row.halves_us
    return float(valued_by[0] / valued_by[chosen_by.argmin()])


@pytest.mark.parametrize("name", NAMES)
def test_the_gains_are_those_of_the_samples(name: str) -> None:
    said = re.search(rf"^\| `{name}` \| ([\d.]+) \((\d+)\) \| ([\d.]+) \((\d+)\) \|$", README, re.MULTILINE)
    assert said is not None
    for place, op in ((1, Op.SPMM), (3, Op.SDDMM)):
        found = [gain(row) for row in rows(name) if row.op == op]
        assert (said[place], said[place + 1]) == (f"{mean_of(found):.3f}", str(len(found)))


def test_no_matrix_stands_in_two_roles() -> None:
    for platform in ("cuda", "spade_sim"):
        roles = ["cpu-source", *(f"{platform}-{role}" for role in ("target", "evaluation", "validation"))]
        patterns = [{row.pattern_sha256 for row in rows(name)} for name in roles]
        assert sum(map(len, patterns)) == len(set().union(*patterns))


def test_the_configs_that_failed_are_counted() -> None:
    failed = {name: sum(bool(one.reason) for row in rows(name) for one in row.configs) for name in NAMES}
    assert [name for name in NAMES if failed[name]] == ["cpu-source"]
    assert f"{failed['cpu-source']:,} of" in README
