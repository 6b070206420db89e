"""Notes: the tables that a script writes are what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts_by_name import FOLDER, load_script

pytestmark = pytest.mark.full

NOTES = (Path(__file__).parents[1] / "docs/notes/lo_spmm.md").read_text()
TABLES = load_script("lo_spmm_tables", FOLDER / "studies")


def test_tables_of_lo_spmm_are_what_the_records_say() -> None:
    assert TABLES.rewritten(NOTES) == NOTES
