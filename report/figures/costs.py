"""Figures of a plan's cost before its first run: time of the search, of each phase, and when the plan has paid off.

All count the time spent on one matrix: features, selection, search and conversion, with and without compiling, whose
result is kept on disk for the next matrix. The phases are after figures 8 and 9 of Peng, Thomadakis, Pienaar and
Kestor, "LiteForm", HPDC 2025, and figure 11 of Lin et al., "LO-SpMM", ACM TACO 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf, isfinite, log10
from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from spmark.impls.core.interfaces import PHASES
from spmark.report.analysis.cases import SPENT_PHASES, spent_s
from spmark.report.analysis.groups import in_panel_order, panels_of
from spmark.report.figures.findings import NO_LEAD, Finding, common_cases, leading, said_seconds, sentence
from spmark.report.figures.panels import grid, line_style, log_ticks, panel_room_in, said, scattered, titled, wrapped
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN, Look, in_style

_BREAK_EVEN = ("break_even_runs", "break_even_runs_with_compile")
_RUNS = tuple(10.0**power for power in range(0, 13, 2))
_CASE = ["op", "dtype", "matrix", "matrix_kind", "width", "label", "implementation"]
MOST_PANELS = 12
TOTAL = "all"
_LOOKS = MappingProxyType(
    {
        "features": Look("#4a8fb8", "o"), "select": Look("#cc79a7", "s"), "search": Look("#d55e00", "^"),
        "convert": Look("#009e73", "v"), "compile": Look("#c48706", "D"), "upload": Look("#8a8a8a", "x"),
        TOTAL: Look("#000000", "+"),
    }
)  # fmt: skip
_PANEL_PHASES = ("features", "search")
"""A label has a panel where a plan spent time in one of these. Other phases give none: most plans convert, and a
library's plan asks for its buffer under ``select``."""
_LEAST_S = 1e-5


def searched(derived: pd.DataFrame) -> pd.DataFrame:
    """Keep the timed cases whose plan was searched for."""
    return derived[(spent_s(derived["phases_s"], ["search"]) > 0) & derived["median_us"].notna()]


@in_style
def search_time(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the seconds from the matrix to a plan against the time of one run, for cases with a search.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `searched` of it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    rows = searched(derived)
    phases = {f"{phase}_s": spent_s(rows["phases_s"], [phase]) for phase in SPENT_PHASES}
    data = rows[[*_CASE, "median_us"]].assign(**phases)
    data = in_panel_order(data.assign(spent_s=data[list(phases)].sum(axis=1)))
    spent = rows.assign(spent_s=spent_s(rows["phases_s"]))
    finding = leading(spent, "spent_s", "searches the shortest", said_seconds, less=True)
    series = looks_of(data, derived, finding.labels)
    drawn = data[data["label"].isin(series)]
    figure, axes = grid(len(panels_of(drawn)), series, "points", width_in, 2.2)
    for ax, part in titled(axes, drawn):
        scattered(ax, part, "median_us", "spent_s", series)
        for limits, values in ((ax.set_xlim, part["median_us"]), (ax.set_ylim, part["spent_s"])):
            limits(10 ** np.floor(np.log10(values.min() / 1.2)), 10 ** np.ceil(np.log10(values.max() * 1.2)))
        for axis in (ax.xaxis, ax.yaxis):
            log_ticks(axis)
        _runs_lines(ax)
        ax.set_xlabel("one run (µs)")
        ax.set_ylabel("search (s)")
    caption = (
        f"Seconds from a matrix to its plan ({', '.join(SPENT_PHASES)}) against the median time of one run, one point "
        f"per case that searched (dotted: as long as so many runs{not_drawn(data, series)})."
    )
    heading = "Time of the search against the time of one run"
    return Plot("search-time", caption, figure, data, heading, finding.text)


def _runs_lines(ax: Axes) -> None:
    """Draw where a search takes as long as a number of runs, with the number where the line leaves the panel."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for runs in _RUNS:
        start, end = max(left, bottom * 1e6 / runs), min(right, top * 1e6 / runs)
        if end / start <= 3:
            continue
        ax.plot([start, end], [start * runs * 1e-6, end * runs * 1e-6], ":", color="#808080", linewidth=0.8, zorder=1)
        sideways = end == right
        ax.annotate(
            f"{said(runs)} run{'s' if runs > 1 else ''}", (end, end * runs * 1e-6), (3 if sideways else -3, -3),
            ha="left" if sideways else "right", va="center" if sideways else "top", textcoords="offset points",
            fontsize=7, color="#505050", zorder=5,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip


@in_style
def break_even(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw the share of cases that have paid off after a number of runs.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str
        What a plan pays off against.
    width_in : float
        Width of the figure in inches.
    """
    rows = derived[~derived["is_baseline"] & derived["break_even_runs"].notna()]
    data = in_panel_order(rows[[*_CASE, *_BREAK_EVEN]])
    finding = _most_paid_off(rows)
    series = looks_of(data, derived, finding.labels)
    counts = data[list(_BREAK_EVEN)].to_numpy(np.float64)
    end = 10.0 ** ceil(log10(max(1e3, float(counts[np.isfinite(counts)].max(initial=1.0)))) + 0.2)
    drawn = data[data["label"].isin(series)]
    figure, axes = grid(len(panels_of(drawn)), series, "lines", width_in, 1.9)
    for ax, part in titled(axes, drawn):
        ax.set_xscale("log")
        _steps(ax, part, series, end)
        ax.set_xlim(1, end)
        ax.set_ylim(-0.02, 1.02)
        log_ticks(ax.xaxis)
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.grid(axis="both")
        ax.set_xlabel("runs")
        ax.set_ylabel("cases paid off")
    caption = (
        f"Share of cases in which features, selection, search and conversion have paid off against {baseline} after so "
        f"many runs (dotted: with compiling as well; the rest is slower than {baseline}{not_drawn(data, series)})."
    )
    heading = f"Runs until a plan has paid off against {baseline}"
    return Plot("break-even", caption, figure, data, heading, finding.text)


def _most_paid_off(rows: pd.DataFrame) -> Finding:
    """Say in one sentence who pays off in the most cases; of equal shares, who does within fewer runs."""
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(rows):
        common, _ = common_cases(part, _BREAK_EVEN[0])
        paid = np.isfinite(common)
        # Shares that are written alike are equal.
        shares, runs = paid.mean().round(2), common.where(paid).median().fillna(inf)
        best = sorted(map(str, common), key=lambda label: (-shares[label], runs[label], label))[:2]
        said_of = [
            f"{label} pays off in {shares[label]:.0%} of the cases"
            + (f", half of these within {said(ceil(runs[label]))} runs" if isfinite(runs[label]) else "")
            for label in best
        ]
        told.append(f"{op}, {dtype}: {', and '.join(said_of) if len(common) else NO_LEAD}")
        named += best if len(common) else []
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


def _steps(ax: Axes, part: pd.DataFrame, series: Mapping[str, Look], end: float) -> None:
    for label, look in series.items():
        own = part[part["label"] == label]
        if own.empty:
            continue
        style = line_style(look) | {"color": look.colour, "drawstyle": "steps-post", "zorder": 3, "clip_on": False}
        runs, share = paid_off(own[_BREAK_EVEN[1]].to_numpy(np.float64), end)
        ax.plot(runs, share, **(style | {"linestyle": ":"}))
        runs, share = paid_off(own[_BREAK_EVEN[0]].to_numpy(np.float64), end)
        ax.plot(runs, share, marker=look.marker, markevery=[0, len(runs) - 1], **style)


def paid_off(break_even_runs: NDArray[np.float64], end: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the steps of the share of cases that have paid off.

    Parameters
    ----------
    break_even_runs : (n,) float64
        Infinite where a case never pays off, NaN where that is not known (counted as never).
    end : float
        Where the last step ends.

    Returns
    -------
    runs, share : (m,) float64 each
        From 1 to ``end``, rising; a case that has paid off before its first run counts from 1.
    """
    finite = np.sort(break_even_runs[np.isfinite(break_even_runs)])
    at, counts = np.unique(np.maximum(finite, 1.0), return_counts=True)
    share = np.cumsum(counts) / len(break_even_runs)
    if at.size == 0 or at[0] > 1:
        at, share = np.insert(at, 0, 1.0), np.insert(share, 0, 0.0)
    return np.append(at, end), np.append(share, share[-1])


def built(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the seconds of every phase of the timed cases of labels that predict or search.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        ``op, dtype, label, implementation, matrix, nnz, phase, seconds``, one row for each phase and `TOTAL`; medians
        over widths. Where labels are more than can be drawn, configs that a sweep pins are left out.
    """
    rows = derived[derived["median_us"].notna() & derived["nnz"].notna()]
    labels = set(rows.loc[spent_s(rows["phases_s"], _PANEL_PHASES) > 0, "label"])
    rows = rows[rows["label"].isin(labels)]
    if rows.groupby(["op", "dtype", "label"]).ngroups > MOST_PANELS:
        rows = rows[rows["requested"].map(len) == 0]
    keys = ["op", "dtype", "label", "implementation", "matrix", "nnz"]
    seconds = {phase: spent_s(rows["phases_s"], [phase]) for phase in PHASES}
    wide = rows[keys].assign(**seconds, **{TOTAL: rows["build_s"]})
    medians = wide.groupby(keys, sort=True)[[*PHASES, TOTAL]].median().reset_index()
    long = medians.melt(keys, var_name="phase", value_name="seconds")
    return long[long["seconds"] > 0].reset_index(drop=True)


@in_style
def overhead_by_phase(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the seconds of each phase over the non-zeros, a panel for each op, dtype and label.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `built` of it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    data = in_panel_order(built(derived))
    cells = [
        (f"{label}: {op}, {dtype}", part)
        for (op, dtype), panel in panels_of(data)
        for label, part in panel.groupby("label", sort=True)
    ]
    cells, left_out = cells[:MOST_PANELS], [title for title, _ in cells[MOST_PANELS:]]
    present = {phase: look for phase, look in _LOOKS.items() if phase in set(data["phase"])}
    figure, axes = grid(len(cells), present, "points", width_in, 1.7, sharex=True, sharey=True)
    for ax, (title, part) in zip(axes, cells, strict=True):
        ax.set_title(wrapped(title, panel_room_in(width_in)), loc="left", fontsize=8.5)
        ax.set_xscale("log")
        ax.set_yscale("log")
        for phase, look in present.items():
            # The sum is a cross, through which the phase that takes nearly all of the time is seen.
            mine, size = part[part["phase"] == phase], 6.0 if phase == TOTAL else 3.5
            ax.plot(mine["nnz"], mine["seconds"].clip(lower=_LEAST_S), look.marker, color=look.colour, markersize=size)
        ax.grid(axis="y")
        ax.set_xlabel("non-zeros")
    for ax in axes:
        ax.tick_params(labelbottom=True)
        log_ticks(ax.xaxis, 5 if width_in > COLUMN_IN else 4)
        log_ticks(ax.yaxis, say=said_seconds)
    alone = f"; in the numbers alone: {', '.join(left_out)}" if left_out else ""
    caption = (
        "Time of building by phase over the non-zeros of the matrix, medians over J (at the edge: below "
        f"{_LEAST_S * 1e6:g} µs{alone})."
    )
    totals = data[data["phase"] == TOTAL]
    finding = leading(totals, "seconds", "builds in the least time", said_seconds, less=True, case=("matrix",))
    return Plot("overhead-by-phase", caption, figure, data, "Time of building by phase", finding.text)
