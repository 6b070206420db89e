"""Every kind of figure can be read, with few and many matrices and labels, at both widths."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_texts import assert_readable

from spmark.impls.core.problem import DType
from spmark.records.schema import Baseline, MatrixKind, ProblemFacts, SearchFacts, Status
from spmark.report.analysis.cases import derive
from spmark.report.figures import all as figures
from spmark.report.figures.plot import MOST_SERIES
from spmark.report.figures.style import COLUMN_IN, LOOKS, WIDTH_IN
from spmark.report.records import load_records

pytestmark = pytest.mark.full

BASELINE = "cusparse_best"
GRAPHS = (
    "dgl/ppi", "snap/soc-Slashdot0902", "planetoid/citeseer", "synthetic/few_columns_2048_nnz4096_nnc64",
    "synthetic/few_columns_2048_nnz4096_nnc128", "synthetic/few_columns_2048_nnz4096_nnc200", "ogb/ogbn-arxiv",
)  # fmt: skip
LAYERS = tuple(
    f"dnn_layers/bert_{i}_768x3072_block32@0.{sparsity}" for i in range(6) for sparsity in (7, 8, 93, 95, 98)
)
MATRICES = {1: GRAPHS[:1], 5: GRAPHS[1:6], 30: (GRAPHS + LAYERS)[:30]}
LABELS = {
    3: ((BASELINE, BASELINE), ("stile", "stile"), ("stile_levels_1", "stile")),
    12: tuple((name, name) for name in [*LOOKS][:12]),
    40: tuple((name, name) for name in [*LOOKS][:14])
    + tuple((f"sparsetir_partitions_4_max_width_{2**i}", "sparsetir") for i in range(26)),
}


@pytest.fixture
def derived_of(records, write):
    def made(matrices: int, labels: int) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        rows = []
        for size, matrix in enumerate(MATRICES[matrices], 1):
            source, name = matrix.split("/")
            for label, implementation in LABELS[labels]:
                for width in (32, 128):
                    rows.append(row(records, rng, size, (source, name), (label, implementation), width))
        moments = (records.START + timedelta(seconds=second) for second in range(len(rows)))
        timed = [one.model_copy(update={"started_at": at}) for one, at in zip(rows, moments, strict=True)]
        return derive(load_records([write(timed)]), BASELINE)

    return made


def row(records: Any, rng: Any, size: int, matrix: tuple[str, str], names: tuple[str, str], width: int) -> Any:
    """Give a case with a search, memory and a roof; one in nine fails, some are slow and some vary."""
    base_us = 20 * size * (width / 32) ** 0.9
    own_us = base_us / rng.lognormal(0.2, 0.8)
    spread = 0.3 if names[0] == "stile" else 0.01
    ok = names[0] == BASELINE or rng.random() > 1 / 9
    kind = MatrixKind.SYNTHETIC if matrix[0] == "synthetic" else MatrixKind.PATTERN
    return records.measurement(
        source=matrix[0], matrix=matrix[1], matrix_kind=kind, matrix_hash=f"{size:064x}", width=width,
        dtype=DType.FLOAT32, label=names[0], implementation=names[1], status=Status.OK if ok else Status.TIMEOUT,
        problem=ProblemFacts(
            num_rows=1000 * size, num_cols=900, nnz=40_000 * size**2, longest_row=99, flops=10_000 * size * width,
            compulsory_bytes=int(base_us * 2e6),
        ),
        samples_us=list(own_us * rng.lognormal(0, spread, 8)), device_bytes=int(1e6 * rng.lognormal(0, 2)),
        baseline=None if names[0] == BASELINE else Baseline(
            implementation=BASELINE, config={}, samples_us=list(base_us * rng.lognormal(0, 0.01, 8))
        ),
        phases_s={"search": 0.1 * size * rng.lognormal(0, 1), "convert": 0.02, "compile": 1.5, "upload": 1e-3},
        search=SearchFacts(candidates=4, compiled=2, measured=2, cores=2),
    )  # fmt: skip


KINDS = {
    "speedup-per-matrix", "speedup-per-width-spmm-float32", "roofline", "search-time", "overhead-by-phase",
    "break-even", "memory-per-matrix",
}  # fmt: skip


@pytest.mark.parametrize(("matrices", "labels"), [(1, 40), (5, 3), (30, 12)])
def test_texts_stay_apart_and_on_the_canvas(derived_of, matrices, labels):
    names = set()
    for draw in figures.plots(derived_of(matrices, labels), BASELINE, every=True):
        for width_in in (WIDTH_IN, COLUMN_IN):
            plot = draw(width_in)
            names.add(plot.name)
            assert_readable(plot.figure)
            assert plot.figure.get_figwidth() == width_in, "pages scale all figures to one width, letters included"
            assert len(plot.figure.legends[0].get_texts()) <= MOST_SERIES
            assert plot.heading and plot.finding.endswith("."), plot.name
    several = {"speedup-over-size", "time-over-series"} if matrices > 1 else set()
    variants = {"variant-times", "variant-searches"} if labels == 3 else set()
    assert names == KINDS | several | variants


def test_labels_beyond_the_limit_are_counted_and_kept_in_the_numbers(derived_of):
    for draw in figures.plots(derived_of(1, 40), BASELINE, every=True):
        plot = draw(WIDTH_IN)
        if plot.name == "overhead-by-phase":
            assert "further panels are in the numbers alone" in plot.caption
            continue
        shown = [text.get_text() for text in plot.figure.legends[0].get_texts()]
        (told,) = re.findall(r"; (\d+) further labels are in the numbers alone", plot.caption)
        assert plot.data["label"].nunique() - int(told) == MOST_SERIES
        unnamed = [label for label in shown if label.startswith("sparsetir_partitions") and label not in plot.finding]
        assert not unnamed or re.search(r"\d+ further labels solved too few cases", plot.finding), plot.name
