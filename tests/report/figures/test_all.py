"""Figures: which are drawn, in valid and equal bytes, and without text that runs into other text."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import pytest
from drawn_bars import bars_of
from matplotlib import image

from spmark.impls.core.problem import DType
from spmark.report.analysis.cases import MOST_GROUPS, derive
from spmark.report.figures.all import plots
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.figures.speedups import speedup_per_matrix
from spmark.report.records import load_records


def draw_all(derived, baseline, also=frozenset(), *, every=True) -> list[Drawing]:
    return [render(draw, also) for draw in plots(derived, baseline, every=every)]


@pytest.fixture
def derived_of(records, write):
    def derived(**options):
        return derive(load_records([write(records.sweep(**options))]), "cusparse_best")

    return derived


def test_what_is_drawn(derived_of):
    derived = derived_of(dtypes=(DType.FLOAT32, DType.FLOAT16))
    names = [drawing.name for drawing in draw_all(derived, "cusparse_best")]
    assert names == [
        "speedup-per-matrix",
        "speedup-per-width-spmm-float32",
        "speedup-per-width-spmm-float16",
        "speedup-over-size",
        "roofline",
        "search-time",
        "overhead-by-phase",
        "break-even",
    ]
    assert [drawing.name for drawing in draw_all(derived, None)] == ["roofline", "search-time", "overhead-by-phase"]
    assert [drawing.name for drawing in draw_all(derived, "cusparse_best", every=False)] == [
        "speedup-per-matrix",
        "speedup-per-width-spmm-float32",
        "speedup-per-width-spmm-float16",
        "search-time",
        "break-even",
    ]


@pytest.mark.full
def test_bytes_are_images_and_repeat(derived_of):
    derived = derived_of(widths=(32,))
    first, second = (draw_all(derived, "cusparse_best", set(Form)) for _ in range(2))
    assert first == second
    plain = [replace(drawing, narrow_svg=b"", png=b"") for drawing in first]
    assert draw_all(derived, "cusparse_best") == plain
    for drawing in first:
        assert image.imread(BytesIO(drawing.png)).shape[1] == 1400
        for svg in (drawing.svg, drawing.narrow_svg):
            assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert drawing.svg != drawing.narrow_svg
        assert drawing.csv.count("\n") > 1


def test_many_matrices_become_curves(derived_of):
    derived = derived_of(matrices=[f"rmat/m{i}" for i in range(MOST_GROUPS + 1)], widths=(32, 64), samples=8)
    drawings = {drawing.name: drawing for drawing in draw_all(derived, "cusparse_best")}
    assert "sorted" in drawings["speedup-per-matrix"].caption
    assert "Geometric-mean" in drawings["speedup-per-width-spmm-float32"].caption
    assert "pattern: 17 matrices" in drawings["speedup-per-width-spmm-float32"].csv


def test_drawing_needs_no_global_state():
    code = "import sys, spmark.report.site.site; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_has_no_result_is_not_drawn(derived_of):
    derived = derived_of(implementations=("cusparse_best", "gespmm", "dgl"), samples=8)
    hidden = derived["label"] == "dgl"
    derived.loc[hidden, ["speedup", "speedup_low", "speedup_high", "median_us"]] = float("nan")
    derived.loc[hidden, "status"] = "unsupported"
    for drawing in draw_all(derived, "cusparse_best"):
        assert "dgl" not in drawing.csv


def test_every_caption_is_one_sentence(derived_of):
    for drawing in draw_all(derived_of(), "cusparse_best"):
        assert drawing.caption.endswith(".")
        assert ". " not in drawing.caption, drawing.caption


def test_a_bar_that_would_leave_the_panel_ends_in_its_value(derived_of):
    derived = derived_of(implementations=("cusparse_best", "cublas"), samples=8)
    rivals = derived["label"] == "cublas"
    for column in ("speedup", "speedup_low", "speedup_high"):
        derived.loc[rivals, column] = 0.01
    axes = speedup_per_matrix(derived, "cusparse_best").figure.axes[0]
    assert "0.01×" in [text.get_text() for text in axes.texts]
    assert {bar.high for bar in bars_of(axes)} == {1.0}
    assert min(bar.low for bar in bars_of(axes)) > 0.16
