"""Notes: the tables that a script writes are what the records say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scripts_by_name import load_script

NOTES = (Path(__file__).parents[1] / "docs/notes/lo_spmm.md").read_text()
TABLES = load_script("lo_spmm_tables")


def test_tables_of_lo_spmm_are_what_the_records_say() -> None:
    assert TABLES.rewritten(NOTES) == NOTES


@pytest.mark.parametrize("name", ["others", "large", "speeds", "against", "seconds", "deviations"])
def test_a_changed_table_is_written_anew(name: str) -> None:
    begin = f"<!-- scripts/lo_spmm_tables.py writes these tables: {name} -->\n\n"
    before, rest = NOTES.split(begin)
    spoiled = before + begin + "| lost |\n\n" + rest[rest.index("<!-- end of these tables -->") :]
    assert TABLES.rewritten(spoiled) == NOTES


def test_agreement_is_of_the_candidates_that_two_searches_share() -> None:
    times = {"proxies": {4: 1.0, 8: 2.0, 16: 3.0, 32: 0.5}, "kernels": {4: 3.0, 8: 2.0, 16: 6.0}}
    rows = [
        {"matrix": "a", "label": label, "seen_us": us, "candidate": {"tile_rows": tile, "threads": 128}}
        for label, of_label in times.items()
        for tile, us in of_label.items()
    ]
    rows.append(rows[0] | {"matrix": "of proxies alone"})
    told = TABLES.agreement(pd.DataFrame(rows), "proxies", "kernels")
    # Of three pairs one is in another order; the proxies' best takes 3 us, the best kernel 2.
    assert list(told.index) == ["a"]
    assert told.loc["a"].tolist() == pytest.approx([1 / 3, 0.5, 3])
