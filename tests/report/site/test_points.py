"""The numbers of the interactive chart: those of the cases, and safe inside of a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from spmark.impls.core.problem import DType
from spmark.report.analysis.cases import derive
from spmark.report.figures.style import looks
from spmark.report.records import load_records
from spmark.report.site import model as points
from spmark.report.site.model import points_of
from spmark.report.site.pages import points_json


def test_every_case_with_a_time_is_a_point(records: ModuleType, write: Callable[..., Path]) -> None:
    rows = records.sweep(widths=(128, 32), dtypes=(DType.FLOAT16, DType.FLOAT32), samples=8)
    derived = derive(load_records([write(rows)]), "cusparse_best")
    made = points_of(derived)
    assert made is not None and made.left_out == 0
    assert [panel["name"] for panel in made.panels] == ["spmm float32", "spmm float16"]
    labels = [series["label"] for series in made.series]
    drawn = looks((label, label) for label in labels)
    for series in made.series:
        look = drawn[series["label"]]
        assert (series["colour"], series["marker"], series["hatch"]) == (look.colour, look.marker, look.hatch)
    assert labels == ["cusparse_best", "gespmm", "sparsetir"]
    timed = derived[derived["median_us"].notna()].set_index(["dtype", "matrix", "width", "label"])
    assert sum(len(panel["points"]) for panel in made.panels) == len(timed)
    for panel in made.panels:
        assert panel["cases"][:2] == [["planetoid/cora", 32], ["planetoid/cora", 128]]
        for series, case, us, speedup in panel["points"]:
            row = timed.loc[(panel["name"].split()[1], *panel["cases"][case], labels[series])]
            assert (us, speedup) == pytest.approx((row["median_us"], row["speedup"]), rel=1e-4)


def test_without_a_baseline_there_is_no_speedup(records: ModuleType, write: Callable[..., Path]) -> None:
    made = points_of(derive(load_records([write([records.measurement(samples_us=[2.0] * 8)])]), None))
    assert made is not None and made.panels[0]["points"] == [[0, 0, 2.0, None]]


def test_nothing_timed_is_no_chart(records: ModuleType, write: Callable[..., Path]) -> None:
    assert points_of(derive(load_records([write([records.measurement(status="timeout")])]), None)) is None


def test_a_chart_has_a_limit_and_says_what_is_left_out(
    records: ModuleType, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "MOST_POINTS", 5)
    derived = derive(load_records([write(records.sweep(samples=8))]), "cusparse_best")
    made = points_of(derived)
    assert made is not None
    assert sum(len(panel["points"]) for panel in made.panels) == 5
    assert made.left_out == int(derived["median_us"].notna().sum()) - 5


def test_a_name_ends_no_script(records: ModuleType, write: Callable[..., Path]) -> None:
    hostile = "</script><script>alert('x')</script>&"
    rows = [records.measurement(samples_us=[2.0] * 8, matrix=hostile, label=hostile)]
    made = points_of(derive(load_records([write(rows)]), None))
    assert made is not None
    text = points_json(made)
    assert "<" not in text and ">" not in text and "&" not in text
    assert json.loads(text)["series"][0]["label"] == hostile
