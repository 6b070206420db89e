"""The sparse layers in the time of a network's step, by hand."""

from __future__ import annotations

import pytest

from spmark.records.schema import Baseline
from spmark.report.analysis.cases import derive
from spmark.report.figures.all import plots
from spmark.report.figures.steps import step_parts
from spmark.report.records import load_records
from spmark.report.tables.results import part_table

PARTS = {"torch_network": {"first": 300.0, "second": 500.0}, "spmark_network": {"first": 100.0, "second": 300.0}}


@pytest.fixture
def derived(records, write):
    base = Baseline(implementation="torch_network", config={}, samples_us=[1000.0] * 8)
    rows = [
        records.measurement(
            op="gcn", width_in=9, width=4, implementation=name, label=name, matrix="cora", parts_us=parts,
            samples_us=[200.0 + sum(parts.values())] * 8, baseline=None if name == "torch_network" else base,
        )
        for name, parts in PARTS.items()
    ]  # fmt: skip
    rows.append(records.measurement(matrix="cora", samples_us=[5.0] * 8))
    return derive(load_records([write(rows)]), "torch_network")


def test_a_bar_is_as_long_as_a_step_and_holds_its_sparse_layers(derived):
    plot = step_parts(derived)
    assert plot.data.set_index("label")["sparse_share"].to_dict() == {
        "torch_network": pytest.approx(0.8), "spmark_network": pytest.approx(2 / 3)
    }  # fmt: skip
    (ax,) = plot.figure.axes
    ends = [(round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6)) for bar in ax.patches]
    assert ends == [(0, 0.8), (0, 0.4), (0.8, 1.0), (0.4, 0.6)]
    assert "spmark_network takes the shortest steps with 0.6 ms" in plot.finding


def test_networks_alone_have_the_figure_and_the_table(derived):
    assert "step-parts" in [draw(6.0).name for draw in plots(derived, "torch_network")]
    spmm = derived[derived["op"] == "spmm"]
    assert "step-parts" not in [draw(6.0).name for draw in plots(spmm, None)]
    assert part_table(spmm).frame.empty
    frame = part_table(derived).frame.set_index("part")
    assert frame["spmark_network_us"].to_dict() == PARTS["spmark_network"]
    assert frame["torch_network_us"].to_dict() == PARTS["torch_network"]
