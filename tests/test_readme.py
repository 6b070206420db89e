"""README: its table is what the records say, its links lead somewhere, and it stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts_by_name import load_script

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# `make docs` checks the links inside of the site; notes link figures outside of it.
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/notes/*.md"), *ROOT.glob("impls/*/README.md")])


def test_the_table_of_results_is_what_the_records_say() -> None:
    assert load_script("results_table").rewritten(README) == README


def test_two_screens() -> None:
    assert len(README.splitlines()) <= 110


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: no file {target}"
