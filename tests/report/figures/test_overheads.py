"""Seconds by phase: whose, of which cases, and their sum."""

from __future__ import annotations

import pytest

from spmark.report.analysis.cases import derive
from spmark.report.figures.costs import TOTAL, built, overhead_by_phase
from spmark.report.records import load_records

PHASES = {32: {"features": 0.1, "search": 2.0, "convert": 1.0}, 64: {"features": 0.3, "search": 4.0, "upload": 0.5}}


def made(records, write, labels=("liteform",), pinned=0):
    rows = [
        records.measurement(
            implementation="liteform", label=label, width=width, phases_s=phases, samples_us=[3.0] * 8,
            requested={"max_width": 4} if number < pinned else {},
        )
        for number, label in enumerate(labels)
        for width, phases in PHASES.items()
    ]  # fmt: skip
    rows.append(records.measurement(implementation="gespmm", phases_s={"compile": 9.0}, samples_us=[3.0] * 8))
    return derive(load_records([write(rows)]), None)


def test_phases_are_medians_over_widths_and_their_sum_is_there(records, write):
    data = built(made(records, write)).set_index("phase")
    assert set(data["label"]) == {"liteform"}, "what compiles only has nothing to choose"
    assert data.loc["search", "seconds"] == pytest.approx(3.0)
    assert data.loc["convert", "seconds"] == pytest.approx(0.5)
    assert data.loc[TOTAL, "seconds"] == pytest.approx((3.1 + 4.8) / 2)
    assert "select" not in data.index


def test_every_phase_is_drawn_in_readable_units(records, write):
    plot = overhead_by_phase(made(records, write))
    (ax,) = [ax for ax in plot.figure.axes if ax.get_visible()]
    assert ax.get_title(loc="left") == "liteform: spmm, float32"
    # Matrices of a like size have nothing in common that a line could show.
    assert {line.get_linestyle() for line in ax.lines} == {"None"}
    plot.figure.draw_without_rendering()
    assert {"200 ms", "500 ms", "1 s", "2 s"} <= {tick.get_text() for tick in ax.get_yticklabels()}
