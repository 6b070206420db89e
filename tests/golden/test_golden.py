"""The pipeline makes of the same inputs what it made before: a change of these lines is a change for users."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from golden import made

pytestmark = pytest.mark.full


def same(found: str, name: str) -> None:
    wanted = made.read(name)
    if found != wanted:
        lines = list(difflib.unified_diff(wanted.splitlines(), found.splitlines(), "before", "now", n=0, lineterm=""))
        told = f"{name}: {len(lines)} lines differ; python tests/golden/made.py writes the files anew"
        pytest.fail("\n".join([told, *lines[:40]]))


@pytest.mark.parametrize("device", made.RUNS)
def test_records_of_a_run_that_was_killed(device: str, tmp_path: Path) -> None:
    same(made.records(device, tmp_path), f"records-{device}")


def test_plans_of_every_packaged_sweep() -> None:
    same(made.plans(), "plans")


def test_tables_of_published_records() -> None:
    same(made.tables(), "tables")


def test_comparison_of_published_records() -> None:
    same(made.comparison(), "compare")
