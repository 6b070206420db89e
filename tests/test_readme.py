"""README: its table is what the records say, its links lead somewhere, and it stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts_by_name import load_script

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.operator import api
from spmark.impls.runtime.device import shipped

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# `make docs` checks the links inside of the site; notes link figures outside of it.
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/notes/*.md"), *ROOT.glob("impls/*/README.md")])


def test_the_table_of_results_is_what_the_records_say() -> None:
    assert load_script("results_table").rewritten(README) == README


def test_the_example_also_runs_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    find = api.device_of

    def with_gpu(name: str | DeviceSpec) -> DeviceSpec:
        return shipped("nvidia-h200") if name == "auto" else find(name)

    monkeypatch.setattr(api, "device_of", with_gpu)
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})


def test_two_screens() -> None:
    assert len(README.splitlines()) <= 110


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: no file {target}"
