"""CSV files of a report in the hands of a spreadsheet."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from spmark.report.site.site import write_report
from spmark.report.tables.table import csv_of


@pytest.mark.parametrize(
    "text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\r\n=1", '=HYPERLINK("x")', "-"]
)
def test_text_that_would_be_a_formula_is_marked(text):
    frame = pd.DataFrame({"name": [text, "plain"], "value": [-1.5, 2.0]})
    back = pd.read_csv(io.StringIO(csv_of(frame)), keep_default_na=False)
    assert back["name"].iloc[0].startswith("'")
    assert list(back["name"])[1:] == ["plain"], "no row more"
    assert list(back["value"]) == [-1.5, 2.0]


def test_numbers_stay_numbers():
    mixed = pd.Series([-1, None], dtype=object)
    frame = pd.DataFrame({"a": [-1, 2], "b": mixed, "c": ["-3", "+4e5"], "d": [True, False], "e": ["é", None]})
    assert csv_of(frame) == "a,b,c,d,e\n-1,-1,-3,True,é\n2,,+4e5,False,\n" == frame.to_csv(index=False)


def test_headings_are_text_too():
    assert csv_of(pd.DataFrame({"=1+1": [1]})) == "'=1+1\n1\n"


@pytest.mark.full
def test_no_cell_of_a_report_is_a_formula(records, write, tmp_path):
    hostile = "=cmd|' /C calc'!A0"
    rows = records.sweep(matrices=("@x/y", "+x/y", "\t=x/y"), implementations=("cusparse_best", hostile, "sparsetir"))
    index = write_report([write(rows)], tmp_path / "site").index
    cells = 0
    for path in sorted(index.parent.rglob("*.csv")):
        frame = pd.read_csv(path, header=None, dtype=str, keep_default_na=False)
        for value in frame.to_numpy().ravel():
            cells += value.startswith("'=")
            assert not value.startswith(("=", "+", "@", "\t", "\r")), (path.name, value)
            assert value.lstrip("-") == value or float(value) < 0, (path.name, value)
    assert cells > 20
