"""Figures of roofs: every case with its bound, what is not calibrated, and the table of means."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pytest
from drawn_bars import bars_of

from spmark.impls.core.problem import DType, Op
from spmark.report.analysis.cases import derive
from spmark.report.figures.all import plots
from spmark.report.figures.plot import render
from spmark.report.figures.roof import has_roof, roof_shares, roof_table
from spmark.report.records import load_records


@pytest.fixture
def derived_of(records, write):
    def derived(device="nvidia-h200", **rates):
        spec = records.device_spec(device).model_copy(update=rates)
        digest = records.environment_of(spec).digest
        rows = records.sweep(ops=(Op.SPMM, Op.SDDMM), dtypes=(DType.FLOAT32, DType.FLOAT16), samples=8)
        rows = [row.model_copy(update={"device": device, "environment": digest}) for row in rows]
        return derive(load_records([write(rows, spec)]), "cusparse_best")

    return derived


def test_the_numbers_are_those_of_every_case(derived_of):
    derived = derived_of()
    plot = roof_shares(derived, "frozen")
    assert len(plot.data) == int(derived["median_us"].notna().sum())
    assert {"roof_us", "bound", "median_us", "share"} <= set(plot.data)
    assert plot.data["share"].between(0, 1).all()
    assert render(partial(roof_shares, derived, "frozen")).csv.count("\n") == len(plot.data) + 1


def test_bars_are_the_means_and_every_case_has_a_point(derived_of):
    derived = derived_of()
    plot, table = roof_shares(derived, "frozen"), roof_table(derived).frame
    frozen = table[table["roof"] == "frozen"]
    for ax, (op, dtype) in zip(plot.figure.axes, (("spmm", "float32"), ("spmm", "float16")), strict=False):
        mine = frozen[(frozen["op"] == op) & (frozen["dtype"] == dtype)]
        heights = sorted(bar.high for bar in bars_of(ax))
        assert heights == pytest.approx(sorted(mine["roof_share"]))
        drawn = sum(len(line.get_xdata()) for line in ax.lines if line.get_linestyle() == "None")
        assert drawn == int(mine["cases"].sum())


@pytest.mark.full
def test_other_gpus_have_the_measured_roof_alone(derived_of):
    derived = derived_of("other-gpu")
    assert (has_roof(derived, "frozen"), has_roof(derived, "measured")) == (False, True)
    assert set(roof_table(derived).frame["roof"]) == {"measured"}
    names = [render(draw).name for draw in plots(derived, "cusparse_best", every=True)]
    assert "roofline" in names
    assert "frozen-roof" not in names


def test_without_rates_there_is_no_roof(derived_of):
    derived = derived_of("other-gpu", copy_bytes_per_s=0.0, fma_flops_per_s=0.0, l2_gather_bytes_per_s={})
    assert not has_roof(derived, "measured")
    assert roof_table(derived).frame.empty
    assert isinstance(roof_table(derived).frame, pd.DataFrame)


def test_without_the_rate_of_gathering_there_is_no_measured_roof(derived_of):
    derived = derived_of(l2_gather_bytes_per_s={})
    assert (has_roof(derived, "frozen"), has_roof(derived, "measured")) == (True, False)
    assert set(roof_table(derived).frame["roof"]) == {"frozen"}


def test_shares_of_the_floor(derived):
    # 4 MB at 4 TB/s take 1 us.
    data = roof_shares(derived, "measured").data.set_index(["matrix", "label", "width"]).sort_index()
    assert data.loc[("ogb/large", "gespmm"), "share"].to_dict() == pytest.approx({32: 1 / 40, 64: 1 / 20})
    assert set(data["roof_us"]) == {1.0}
