"""Figures of a plan's cost before its first run: search time against kernel time, and when the plan has paid off.

Both count the time spent on one matrix: features, selection, search and conversion, with and without compiling, whose
result is kept on disk for the next matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf, isfinite, log10

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from spmark.report.analysis.cases import SPENT_PHASES, spent_s
from spmark.report.analysis.groups import in_panel_order, panels_of
from spmark.report.figures.findings import NO_LEAD, Finding, common_cases, leading, said_seconds, sentence, too_few
from spmark.report.figures.panels import grid, line_style, log_ticks, said, scattered, titled
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, Look, in_style

_BREAK_EVEN = ("break_even_runs", "break_even_runs_with_compile")
_RUNS = tuple(10.0**power for power in range(0, 13, 2))


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
    columns = ["op", "dtype", "matrix", "matrix_kind", "width", "label", "implementation", "median_us"]
    data = rows[columns].assign(**phases)
    data = in_panel_order(data.assign(spent_s=data[list(phases)].sum(axis=1)))
    finding = _shortest_search(rows)
    series = looks_of(data, derived, finding.labels)
    drawn = data[data["label"].isin(series)]
    figure, axes = grid(len(panels_of(drawn)), series, "points", width_in, 2.2)
    for ax, part in titled(axes, drawn):
        scattered(ax, part, "median_us", "spent_s", series)
        _whole_decades(ax, part)
        _runs_lines(ax)
        ax.set_xlabel("one run (µs)")
        ax.set_ylabel("search (s)")
    caption = (
        f"Seconds from a matrix to its plan ({', '.join(SPENT_PHASES)}) against the median time of one run, one point "
        "per case that searched. Dotted lines: the search costs as much as this many runs."
    )
    heading = "Time of the search against the time of one run"
    return Plot("search-time", caption + not_drawn(data, series), figure, data, heading, finding.text)


def _shortest_search(rows: pd.DataFrame) -> Finding:
    """Say in one sentence whose search is the shortest."""
    spent = rows.assign(spent_s=spent_s(rows["phases_s"]))
    return leading(spent, "spent_s", "searches the shortest", said_seconds, less=True)


def _whole_decades(ax: Axes, part: pd.DataFrame) -> None:
    for column, limits, axis in (("median_us", ax.set_xlim, ax.xaxis), ("spent_s", ax.set_ylim, ax.yaxis)):
        values = part.loc[part[column] > 0, column]
        low, high = np.floor(np.log10(values.min() / 1.2)), np.ceil(np.log10(values.max() * 1.2))
        limits(10.0**low, 10.0**high)
        log_ticks(axis, values)


def _runs_lines(ax: Axes) -> None:
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for runs in _RUNS:
        start, end = max(left, bottom * 1e6 / runs), min(right, top * 1e6 / runs)
        if start >= end:
            continue
        ax.plot([start, end], [start * runs * 1e-6, end * runs * 1e-6], ":", color="#808080", linewidth=0.8, zorder=1)
        # The name stands where the line leaves the panel, unless the line has only just entered.
        if end / start > 3:
            leaves_right = end == right
            ax.annotate(
                f"{said(runs)} run{'s' if runs > 1 else ''}", (end, end * runs * 1e-6), (3 if leaves_right else -3, -3),
                ha="left" if leaves_right else "right", va="center" if leaves_right else "top",
                textcoords="offset points", fontsize=7, color="#505050", zorder=5,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            )  # fmt: skip


def counted_runs(derived: pd.DataFrame) -> pd.DataFrame:
    """Keep the rivals' cases of which it is known after how many runs they have paid off."""
    return derived[~derived["is_baseline"] & derived["break_even_runs"].notna()]


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
    rows = counted_runs(derived)
    columns = ["op", "dtype", "matrix", "matrix_kind", "width", "label", "implementation", *_BREAK_EVEN]
    data = in_panel_order(rows[columns])
    finding = _most_paid_off(rows)
    series = looks_of(data, derived, finding.labels)
    counts = data[list(_BREAK_EVEN)].to_numpy(np.float64)
    most = max(1e3, float(counts[np.isfinite(counts)].max(initial=1.0)))
    end = 10.0 ** ceil(log10(most) + 0.2)
    drawn = data[data["label"].isin(series)]
    figure, axes = grid(len(panels_of(drawn)), series, "lines", width_in, 1.9)
    for ax, part in titled(axes, drawn):
        ax.set_xscale("log")
        _steps(ax, part, series, end)
        ax.set_xlim(1, end)
        ax.set_ylim(-0.02, 1.02)
        log_ticks(ax.xaxis, [1, end])
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        ax.grid(axis="both")
        ax.set_xlabel("runs")
        ax.set_ylabel("cases paid off")
    caption = (
        f"Share of cases in which features, selection, search and conversion have paid off against {baseline} after so "
        "many runs (dotted: with compiling as well). What starts at the left edge costs nothing before its first run, "
        f"and what never reaches 100 % is slower than {baseline} in the other cases."
    )
    heading = f"Runs until a plan has paid off against {baseline}"
    return Plot("break-even", caption + not_drawn(data, series), figure, data, heading, finding.text)


def _most_paid_off(rows: pd.DataFrame) -> Finding:
    """Say in one sentence who pays off in the most cases; of equal shares, who does within fewer runs."""
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(rows):
        common, left_out = common_cases(part, _BREAK_EVEN[0])
        if common.empty:
            told.append(f"{op}, {dtype}: {NO_LEAD}")
            continue
        paid = np.isfinite(common)
        runs = common.where(paid).median()
        # Shares that are written alike are equal.
        shares_and_runs = zip(map(str, common), paid.mean().round(2), runs.fillna(inf), strict=True)
        places = {label: (-share, count) for label, share, count in shares_and_runs}
        first, *others = sorted(places, key=lambda label: (places[label], label))
        who = f"{first} pays off in {_said_paid(*places[first])}"
        beside = f"; {others[0]} does in {_said_paid(*places[others[0]])}" if others else ""
        tie = ", a tie" if others and places[first] == places[others[0]] else ""
        told.append(f"{op}, {dtype}: {who}{beside}{tie}{too_few(left_out)}")
        named += [first, *others[:1]]
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


def _said_paid(less: float, runs: float) -> str:
    """Say a share, given with a minus, and within how many runs half of its cases have paid off."""
    if not isfinite(runs):
        return f"{-less:.0%} of the cases"
    count = ceil(runs)
    after = f"within {said(count)} run{'s' if count > 1 else ''}" if count else "at once"
    return f"{-less:.0%} of the cases, half of these {after}"


def _steps(ax: Axes, part: pd.DataFrame, series: Mapping[str, Look], end: float) -> None:
    for label, look in series.items():
        own = part[part["label"] == label]
        if own.empty:
            continue
        style = line_style(look) | {"color": look.colour, "drawstyle": "steps-post", "zorder": 3}
        for column, line in zip(_BREAK_EVEN, (style["linestyle"], ":"), strict=True):
            runs, share = paid_off(own[column].to_numpy(np.float64), end)
            marks = {"marker": look.marker, "markevery": [0, len(runs) - 1]} if column == _BREAK_EVEN[0] else {}
            ax.plot(runs, share, clip_on=False, **(style | {"linestyle": line} | marks))


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
    finite = np.sort([runs for runs in break_even_runs if isfinite(runs)])
    at, counts = np.unique(np.maximum(finite, 1.0), return_counts=True)
    share = np.cumsum(counts) / len(break_even_runs)
    if at.size == 0 or at[0] > 1:
        at, share = np.insert(at, 0, 1.0), np.insert(share, 0, 0.0)
    return np.append(at, end), np.append(share, share[-1])
