"""Figures: which are drawn, in valid and equal bytes, and without text that runs into other text."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import pytest
from drawn_bars import bars_of
from figure_texts import assert_readable
from matplotlib import image

from spmark.impls.core.problem import DType, Op
from spmark.report.derive.cases import derive
from spmark.report.derive.groups import MOST_GROUPS
from spmark.report.figures import all as figures
from spmark.report.figures.all import draw_all
from spmark.report.figures.plot import Form
from spmark.report.figures.speedups import speedup_per_matrix
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN
from spmark.report.load.records import load_records

GRAPHS = (
    "planetoid/cora", "planetoid/citeseer", "planetoid/pubmed", "dgl/ppi", "ogb/arxiv", "snap/web-NotreDame",
    "twin/ogbn-proteins", "twin/reddit",
)  # fmt: skip
LAYERS = tuple(f"dnn_layers/bert-intermediate-dense-{i}-sparsity-0.{i}" for i in range(1, 10))


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


def test_matrices_of_unknown_size_are_not_drawn_over_it(derived_of):
    """As those of airspeed velocity's result files."""
    names = [drawing.name for drawing in draw_all(derived_of().assign(nnz=float("nan")), "cusparse_best")]
    assert "speedup-per-matrix" in names
    assert "speedup-over-size" not in names


@pytest.mark.full
def test_bytes_are_images_and_repeat(derived_of):
    derived = derived_of(widths=(32,))
    first, second = (list(draw_all(derived, "cusparse_best", also=set(Form))) for _ in range(2))
    assert first == second
    plain = [replace(drawing, narrow_svg=b"", png=b"") for drawing in first]
    assert list(draw_all(derived, "cusparse_best")) == plain
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


def test_many_layers_have_one_bar_for_each_sparsity(derived_of):
    layers = [f"dnn_layers/l{i}_8x8@{sparsity}" for i in range(6) for sparsity in ("0.7", "0.9", "0.95")]
    plot = speedup_per_matrix(derived_of(matrices=[*layers, "ogb/arxiv"], widths=(32,), samples=8), "cusparse_best")
    groups = list(dict.fromkeys(plot.data["group"]))
    assert groups == ["ogb/arxiv", "dnn_layers 70 %", "dnn_layers 90 %", "dnn_layers 95 %", "all"]
    assert set(plot.data.loc[plot.data["group"].str.startswith("dnn"), "problems"]) == {6}
    ticks = [label.get_text() for label in plot.figure.axes[0].get_xticklabels()]
    assert [tick.split("\n")[0] for tick in ticks] == [
        "arxiv",
        "dnn_layers 70 %",
        "dnn_layers 90 %",
        "dnn_layers 95 %",
        "all",
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("matrices", "width_in"),
    [(GRAPHS, WIDTH_IN), (GRAPHS, COLUMN_IN), (LAYERS, WIDTH_IN), (GRAPHS[:1], COLUMN_IN)],
    ids=["graphs", "graphs-narrow", "layers", "one-narrow"],
)
def test_no_text_runs_into_other_text(derived_of, matrices, width_in):
    names = ("cusparse_best", "cusparse", "cublas", "gespmm", "sparsetir", "stile")
    derived = derived_of(matrices=matrices, implementations=names, ops=(Op.SPMM, Op.SDDMM), samples=8)
    drawn = [plot(width_in).figure for plot in figures._plots(derived, "cusparse_best")]
    assert len(drawn) == (8 if len(matrices) > 1 else 7)
    for figure in drawn:
        assert_readable(figure)


def test_drawing_needs_no_global_state():
    code = "import sys, spmark.report.page.site; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_has_no_result_is_named_and_not_drawn(derived_of):
    derived = derived_of(implementations=("cusparse_best", "gespmm", "dgl"), samples=8)
    hidden = derived["label"] == "dgl"
    derived.loc[hidden, ["speedup", "speedup_low", "speedup_high", "median_us"]] = float("nan")
    derived.loc[hidden, "status"] = "unsupported"
    for drawing in draw_all(derived, "cusparse_best"):
        assert drawing.caption.endswith("Without any result here, so not drawn: dgl.")


def test_a_bar_that_would_leave_the_panel_ends_in_its_value(derived_of):
    derived = derived_of(implementations=("cusparse_best", "cublas"), samples=8)
    rivals = derived["label"] == "cublas"
    for column in ("speedup", "speedup_low", "speedup_high"):
        derived.loc[rivals, column] = 0.01
    axes = speedup_per_matrix(derived, "cusparse_best").figure.axes[0]
    assert "0.01×" in [text.get_text() for text in axes.texts]
    assert {bar.high for bar in bars_of(axes)} == {1.0}
    assert min(bar.low for bar in bars_of(axes)) > 0.16
