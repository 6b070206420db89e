"""Matrices that differ in a number: which number is the axis, and what is drawn over it."""

from __future__ import annotations

import pytest

from spmark.records.schema import MatrixKind
from spmark.report.analysis.cases import derive
from spmark.report.figures.series import series_of, time_over_series
from spmark.report.records import load_records


def derived_of(records, write, names, kind=MatrixKind.SYNTHETIC):
    rows = [
        records.measurement(
            implementation="lo_spmm", source="patterns", matrix=name, matrix_kind=kind, matrix_hash=f"{i:064x}",
            samples_us=[10.0 + i] * 8,
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    return derive(load_records([write(rows)]), None)


def test_the_number_with_most_values_is_the_axis(records, write):
    names = [f"few_columns_2048_nnz{nnz}_nnc{nnc}" for nnz in (2048, 4096) for nnc in (32, 64, 128)]
    data = series_of(derived_of(records, write, names))
    assert set(data["series"]) == {f"patterns/few_columns_2048_nnz{nnz}_nnc*" for nnz in (2048, 4096)}
    assert set(data["axis"]) == {"nnc"}
    assert data["at"].tolist() == [32, 64, 128] * 2
    assert data["median_us"].tolist() == [10, 11, 12, 13, 14, 15]


def test_decimals_and_sparsities_are_numbers_too(records, write):
    names = [f"bert_768x768@{sparsity}" for sparsity in ("0.98", "0.7", "0.9")]
    data = series_of(derived_of(records, write, names))
    assert data[["axis", "at"]].to_numpy().tolist() == [["sparsity", 0.7], ["sparsity", 0.9], ["sparsity", 0.98]]


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["band_1", "band_2"], MatrixKind.SYNTHETIC),
        (["band_1", "strided_2", "butterfly_3"], MatrixKind.SYNTHETIC),
        (["graph1", "graph2", "graph3"], MatrixKind.PATTERN),
        ([f"m{a}_{b}" for a in range(13) for b in range(13)], MatrixKind.SYNTHETIC),
    ],
    ids=["two", "other rules", "graphs", "too many panels"],
)
def test_what_is_no_series(records, write, names, kind):
    assert series_of(derived_of(records, write, names, kind)).empty


def test_a_panel_for_each_series(records, write):
    names = [f"similar_1024_r{r}_{ratio}to1" for r in ("0.0", "0.3", "0.6", "0.9") for ratio in (1, 2, 3)]
    plot = time_over_series(derived_of(records, write, names))
    shown = [ax for ax in plot.figure.axes if ax.get_visible()]
    assert [ax.get_xlabel() for ax in shown] == ["r"] * 3
    assert shown[0].get_title(loc="left") == "similar_1024_r*_1to1, J = 128"
    assert len(plot.data) == 12
