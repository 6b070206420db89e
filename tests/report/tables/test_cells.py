"""Numbers as text: the column's name decides the unit."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pandas as pd
import pytest

from spmark.report.tables.table import MOST_ROWS, Table, cell, shown


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("median_us", 137.246, "137.2"),
        ("median_us", 123456.7, "123,457"),
        ("build_s", 0.00123, "0.00123"),
        ("build_s", 9.6214e-05, "0.00009621"),
        ("search_s", 1.333e-05, "0.00001333"),
        ("build_s", 0.0, "0"),
        ("speedup", 1.8349, "1.83×"),
        ("speedup", 1.0, "1.00×"),
        ("common_speedup", 123.4, "123×"),
        ("bytes_share", 0.5321, "53.2%"),
        ("device_bytes", 2_500_000, "2.5 MB"),
        ("break_even_runs", inf, "never"),
        ("break_even_runs", 40000.0, "40,000"),
        ("max_rel_error", 3.14e-7, "3.1e-07"),
        ("nnz", 1166243.0, "1,166,243"),
        ("width", np.int64(128), "128"),
        ("speedup", nan, ""),
    ],
)
def test_units(column, value, text):
    assert cell(column, value) == text


def test_intervals_stand_in_their_column():
    frame = pd.DataFrame(
        {"x": ["a", None], "speedup": [2.0, nan], "speedup_low": [1.5, nan], "speedup_high": [2.5, nan]}
    )
    columns, rows = shown(frame)
    assert columns == ["x", "speedup"]
    assert [[c.text for c in row] for row in rows] == [["a", "2.00× [1.50×, 2.50×]"], ["", ""]]
    assert [row[1].number for row in rows] == [2.0, None]


@pytest.mark.parametrize(("count", "written"), [(MOST_ROWS, True), (MOST_ROWS + 1, False)])
def test_latex_has_a_row_a_case_and_escapes_what_records_say(count, written):
    reason = "50 % of {x} & $y$\nsecond line"
    frame = pd.DataFrame(
        {
            "label": [f"a_{i}" for i in range(count)],
            "speedup": 1.5,
            "speedup_low": 1.25,
            "speedup_high": 2.0,
            "reason": reason,
        }
    )
    table = Table("gpu-some", "Some", "", frame)
    assert table.on_paper is written
    text = table.latex()
    assert "\\begin{tabular}{lll}" in text
    rows = [line for line in text.splitlines() if line.startswith(r"a\_")]
    assert len(rows) == count
    assert rows[0] == r"a\_0 & 1.50× [1.25×, 2.00×] & 50 \% of \{x\} \& \$y\$ \\"
    assert r"\label{tab:gpu-some}" in text
