"""Code that is not part of spmark: a file with an implementation, and distributions with entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spmark.impls import table
from spmark.impls.core import digest
from spmark.impls.core.outside import offers

MINE = '''
from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.scipy_cpu.plan import ScipyCpu


@dataclass(frozen=True)
class Mine(ScipyCpu):
    """SciPy's product under another name."""

    name: ClassVar[str] = "mine"
'''
HALVED = (
    MINE
    + '''
    def build(self, problem, device):
        """Give a plan whose results are half of what they should be."""
        plan = super().build(problem, device)
        right = plan.run

        def run(operands, out):
            right(operands, out)
            out *= 0.5

        plan.run = run
        return plan
'''
)
"""An implementation with wrong results."""


def write_distribution(folder: Path, name: str, groups: Mapping[str, str], **modules: str) -> None:
    """Write an installed distribution, version 1.0, whose groups of entry points hold a line each."""
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("".join(f"[{group}]\n{line}\n" for group, line in groups.items()))
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def nothing_loaded() -> Iterator[None]:
    """Begin and end with a process that knows no code from outside."""
    before = set(sys.modules)
    offers.cache_clear()
    yield
    offers.cache_clear()
    table.LOADED.clear()
    digest._OUTSIDE.clear()
    for name in set(sys.modules) - before:
        if name.startswith(("spmark_outside_", "demo_")):
            del sys.modules[name]
