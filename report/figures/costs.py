"""Figures of what a plan costs: time of the search and of each phase, when the plan has paid off, and memory.

Times count the time spent on one matrix: features, selection, search and conversion, with and without compiling, whose
result is kept on disk for the next matrix. The phases are after figures 8 and 9 of Peng, Thomadakis, Pienaar and
Kestor, "LiteForm", HPDC 2025, and figure 11 of Lin et al., "LO-SpMM", ACM TACO 2024; memory is
after figures 8 and 10 of Fang, Shen, Wang and Chen, "STile", SIGMOD 2024.
"""

from __future__ import annotations

from math import ceil, inf, isfinite, log10
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from spmark.impls.core.interfaces import PHASES
from spmark.records.schema import Status
from spmark.report.analysis.cases import (
    MOST_POOLED,
    SPENT_PHASES,
    beside,
    beside_baseline,
    groups_of,
    in_panel_order,
    panels_of,
    spent_s,
)
from spmark.report.analysis.statistics import mean_of
from spmark.report.figures import panels
from spmark.report.figures.findings import NO_LEAD, Finding, common_cases, leading, said_seconds, sentence
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
    figure, cells = panels.by_panel(data, series, "points", width_in, 2.2)
    for ax, part in cells:
        panels.scattered(ax, part, "median_us", "spent_s", series)
        for limits, values in ((ax.set_xlim, part["median_us"]), (ax.set_ylim, part["spent_s"])):
            limits(10 ** np.floor(np.log10(values.min() / 1.2)), 10 ** np.ceil(np.log10(values.max() * 1.2)))
        for axis in (ax.xaxis, ax.yaxis):
            panels.log_ticks(axis)
        _runs_lines(ax)
        ax.set(xlabel="one run (µs)", ylabel="search (s)")
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
        style: dict[str, Any] = {"ha": "left", "va": "center"} if end == right else {"ha": "right", "va": "top"}
        name = f"{panels.said(runs)} run{'s' if runs > 1 else ''} "
        ax.text(
            end, end * runs * 1e-6, name, fontsize=7, color="#505050", zorder=5, backgroundcolor="#ffffffc0", **style
        )


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
    finding = _soonest(rows)
    series = looks_of(data, derived, finding.labels)
    runs = data[list(_BREAK_EVEN)].clip(lower=1.0).fillna(inf)
    counts = runs.to_numpy(np.float64)
    end = 10.0 ** ceil(log10(max(1e3, counts[np.isfinite(counts)].max(initial=1.0))) + 0.2)
    figure, cells = panels.by_panel(data, series, "lines", width_in, 1.9)
    for ax, part in cells:
        ax.set(xscale="log", xlim=(1, end), ylim=(-0.02, 1.02), xlabel="runs", ylabel="cases paid off")
        for label, look in series.items():
            own = runs.loc[part.index[part["label"] == label]].clip(upper=10 * end)
            if len(own):
                style = panels.line_style(look) | {"color": look.colour, "zorder": 3}
                ax.ecdf(own[_BREAK_EVEN[0]], marker=look.marker, markevery=(0.0, 0.3), **style)
                ax.ecdf(own[_BREAK_EVEN[1]], **(style | {"linestyle": ":"}))
        panels.log_ticks(ax.xaxis)
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.grid(axis="both")
    caption = (
        f"Share of cases in which features, selection, search and conversion have paid off against {baseline} after so "
        f"many runs (dotted: with compiling as well; the rest is slower than {baseline}{not_drawn(data, series)})."
    )
    heading = f"Runs until a plan has paid off against {baseline}"
    return Plot("break-even", caption, figure, data, heading, finding.text)


def _said_runs(runs: float) -> str:
    return f"after {panels.said(ceil(runs))} runs" if isfinite(runs) else "never"


def _soonest(rows: pd.DataFrame) -> Finding:
    """Say in one sentence after how many runs half of the cases have paid off, the two labels with the fewest first."""
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(rows):
        common, _ = common_cases(part, _BREAK_EVEN[0])
        medians = {str(label): runs for label, runs in common.median().items()}
        best = sorted(medians, key=lambda label: (medians[label], label))[:2] if len(common) else []
        said_of = [f"{label} {_said_runs(medians[label])}" for label in best]
        told.append(
            f"{op}, {dtype}: " + (f"half of the cases have paid off with {', '.join(said_of)}" if best else NO_LEAD)
        )
        named += best
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


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
    cells = list(data.groupby(["op", "dtype", "label"], sort=False))
    present = {phase: look for phase, look in _LOOKS.items() if phase in set(data["phase"])}
    shown = cells[:MOST_PANELS]
    figure, axes = panels.grid(len(shown), present, "points", width_in, 1.7, sharex=True, sharey=True)
    for ax, ((op, dtype, label), part) in zip(axes, shown, strict=True):
        ax.set_title(
            panels.wrapped(f"{label}: {op}, {dtype}", panels.panel_room_in(width_in)), loc="left", fontsize=8.5
        )
        ax.set(xscale="log", yscale="log", xlabel="non-zeros")
        for phase, look in present.items():
            # The sum is a cross, through which the phase that takes nearly all of the time is seen.
            mine, size = part[part["phase"] == phase], 6.0 if phase == TOTAL else 3.5
            ax.plot(mine["nnz"], mine["seconds"].clip(lower=_LEAST_S), look.marker, color=look.colour, markersize=size)
        ax.grid(axis="y")
        ax.tick_params(labelbottom=True)
    panels.log_ticks(axes[0].xaxis, 5 if width_in > COLUMN_IN else 4)
    panels.log_ticks(axes[0].yaxis, say=said_seconds)
    left_out = len(cells) - len(shown)
    more = f"; {left_out} further panels are in the numbers alone" if left_out else ""
    caption = (
        "Time of building by phase over the non-zeros of the matrix, medians over J (at the edge: below "
        f"{_LEAST_S * 1e6:g} µs{more})."
    )
    totals = data[data["phase"] == TOTAL]
    finding = leading(totals, "seconds", "builds in the least time", said_seconds, less=True, case=("matrix",))
    return Plot("overhead-by-phase", caption, figure, data, "Time of building by phase", finding.text)


def memory_ratios(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the cases for which both the plan and the baseline's own plan report their bytes.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        The rows with ``memory_ratio``, device bytes over the baseline's; the baseline's own are left out.
    """
    known = derived[(derived["status"] == Status.OK.value) & (derived["device_bytes"] > 0)]
    rivals = known[~known["is_baseline"]]
    against = beside(rivals, known[known["is_baseline"]], "device_bytes")["device_bytes"]
    rivals = rivals.assign(memory_ratio=rivals["device_bytes"] / against.astype(float))
    return rivals[rivals["memory_ratio"].notna()]


@in_style
def memory_per_matrix(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw each plan's device bytes over the baseline's: bars, or sorted curves where matrices are many.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `memory_ratios` of it must not be empty.
    baseline : str
        For captions and axes.
    width_in : float
        Width of the figure in inches.
    """
    rows = memory_ratios(derived)
    groups, order = groups_of(rows)
    keys = ["op", "dtype", "group", "label", "implementation"]
    ratios = rows.assign(group=groups).groupby(keys)["memory_ratio"]
    data = ratios.agg(memory_ratio=mean_of, least="min", greatest="max", cases="size").reset_index()
    data = in_panel_order(data)
    cases = beside_baseline(rows, baseline, "memory_ratio")
    finding = leading(cases, "memory_ratio", "takes the least memory", panels.said_ratio, less=True)
    series = looks_of(data, derived, finding.labels)
    axis = f"bytes over\n{baseline}'s"
    if len(order) > MOST_POOLED:
        figure = panels.curves(data, "memory_ratio", series, width_in, axis=axis)
        ends = ""
    else:
        figure = panels.by_group(data, series, ("memory_ratio", "least", "greatest"), order, width_in, axis=axis)
        ends = "; whiskers reach from the least to the greatest"
    caption = (
        f"Device memory of a plan (its format, workspaces and code, without the dense operands) over that of "
        f"{baseline}'s, geometric mean over the cases of a matrix or a pool of layers{ends}{not_drawn(data, series)}."
    )
    heading = f"Memory of a plan over that of {baseline}"
    return Plot("memory-per-matrix", caption, figure, data, heading, finding.text)
