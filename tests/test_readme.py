"""The README's tables name every implementation and every packaged sweep."""

from __future__ import annotations

import re
from pathlib import Path

from spmark.datasets.sweepfile import packaged_sweeps
from spmark.impls.table import IMPLEMENTATIONS

README = (Path(__file__).parents[1] / "README.md").read_text()


def first_cells(heading: str) -> list[str]:
    """Give the names in the first cell of each row of a section's table; `_x` continues the name before."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    names: list[str] = []
    for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", row):
            whole = name if not name.startswith("_") else re.match(r"[a-z]+(_spmm)?", names[-1])[0] + name
            names.append(whole)
    return names


def test_every_implementation_has_a_row() -> None:
    assert sorted(first_cells("Implementations")) == sorted(IMPLEMENTATIONS)


def test_every_sweep_has_a_row() -> None:
    assert sorted(first_cells("Sweeps")) == sorted(packaged_sweeps())
