"""Figures of speed-ups over the baseline: per matrix, against J, and against the matrix's size and row length.

Speed-ups are ratios, so their axis is logarithmic and bars start at 1: as tall upwards for twice as fast as downwards
for half. A bar is a mean over the cases that all implementations drawn in its group solved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spmark.impls.core.record import MatrixKind
from spmark.report.analysis.cases import WIDE_MARK, WIDE_SPEEDUP
from spmark.report.analysis.groups import (
    ALL,
    MOST_GROUPS,
    MOST_POOLED,
    beside_baseline,
    by_size,
    groups_of,
    in_panel_order,
    panels_of,
    rivals_of,
)
from spmark.report.analysis.means import MOSTLY, common_kinds, kinds, mean_speedups, mean_speedups_by_kind
from spmark.report.figures.bars import by_group, said_ratio, titled_panels, without_bars
from spmark.report.figures.findings import at_widths, counted, leading, most_matrices
from spmark.report.figures.names import broken, short_names
from spmark.report.figures.panels import (
    MOST_SPANNED,
    axes_in,
    figure_with_legend,
    line_style,
    log_ticks,
    ratio_axis,
    shown_ends,
    sorted_curves,
    stacked,
    titled,
    whiskers,
    width_axis,
)
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN, Look, in_style

LEAST_BAR = 1 / 6
"""Bars of speed-ups are cut here: a dense product on a graph would make all others look alike."""
LEAST_POINT = 1 / 10
"""Points below are drawn at the edge, and lines leave their panel there."""
_TITLE_POINTS = 8.0
_NO_WHISKER = f"An interval that spans more than {MOST_SPANNED}-fold, of few matrices, has no whisker."
_MIXED = f"{ALL} mixed"
"""The group of all kinds of matrices together."""
_COMMON = {f"common_{name}": name for name in ("speedup", "speedup_low", "speedup_high", "cases")}
_MADE = (MatrixKind.SYNTHETIC.value, MatrixKind.TWIN.value)


@in_style
def speedup_per_matrix(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw each matrix's geometric-mean speed-up as bars, or as sorted curves where matrices are many.

    Of many matrices, layers of one source and sparsity have one bar together, if that leaves few enough.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str
        What the speed-ups are over, for captions and axes.
    width_in : float
        Width of the figure in inches.
    """
    rivals = rivals_of(derived)
    _, matrices = groups_of(derived)
    pools = len(matrices) < rivals["matrix"].nunique()
    curves = len(matrices) > (MOST_POOLED if pools else MOST_GROUPS)
    if curves:
        matrices = by_size(rivals)
    data = _means_per_matrix(derived, pooled=not curves)
    totals = [group for group in dict.fromkeys(data["group"]) if group not in matrices]
    axis = f"speed-up over\n{baseline}"
    finding = leading(beside_baseline(rivals, baseline, "speedup"), "speedup", "is fastest", said_ratio)
    series = looks_of(data, derived, finding.labels)
    if curves:
        figure = _curves(data[data["group"].isin(matrices)], series, axis, width_in)
        caption = (
            f"Geometric-mean speed-up over {baseline} (1.0) of each matrix ({kinds(rivals)}), sorted for every "
            f"implementation on its own.{_said_means(data, totals, series)}"
        )
    else:
        wide = data["wide_share"] >= MOSTLY
        legend = f"{WIDE_MARK} half of its cases vary by more than ±{WIDE_SPEEDUP:.0%}" if wide.any() else ""
        figure = by_group(
            data.assign(wide=wide), series, ("speedup", "speedup_low", "speedup_high"), [*matrices, *totals],
            width_in, axis=axis, least=LEAST_BAR, below=_counts, title=legend,
        )  # fmt: skip
        layers = ", and of all layers of a sparsity (per cent of zeros) together" if pools else ""
        caption = (
            f"Geometric-mean speed-up over {baseline} (1.0) per matrix{layers}; whiskers are 95 % intervals "
            f"over its widths, and over matrices in {'these and ' if pools else ''}the shaded groups, which are "
            f"means over all matrices of a kind{' and over all kinds mixed' if _MIXED in totals else ''}. Every bar "
            "of a group is over the same cases, those that all implementations with a bar in it solved: their number n "
            "stands under the name. Who solved no more than half of what any solved has no bar, but a mean of its own "
            f"in the table. Bars end at {LEAST_BAR:.2g}, with the value above where there is room. {_NO_WHISKER}"
            + without_bars(titled_panels(data), "speedup", series)
        )
        if wide.any():
            caption += (
                f" {WIDE_MARK} marks a bar of which at least half of the cases have a 95 % interval that reaches more "
                f"than {WIDE_SPEEDUP:.0%} from the case's speed-up to either side: a busy machine, or runs that differ."
            )
    heading = f"Speed-up over {baseline}{', over all matrices, sorted' if curves else ' on each matrix'}"
    return Plot("speedup-per-matrix", caption + not_drawn(data, series), figure, data, heading, finding.text)


def _said_means(data: pd.DataFrame, totals: Sequence[str], series: Mapping[str, Look]) -> str:
    """Tell the means over all matrices, which curves do not show, from the greatest on, as sentences of a caption."""
    told = ""
    for title, part in titled_panels(data[data["group"].isin(totals) & data["label"].isin(series)]):
        last = part[(part["group"] == part["group"].iloc[-1]) & part["speedup"].notna()]
        means = last.sort_values("speedup", ascending=False, kind="stable")
        named = ", ".join(f"{row['label']} {said_ratio(row['speedup'])}" for row in means.to_dict("records"))
        told += f" Means, {title}, over {counted(last['cases'].max(), 'common case')}: {named}." if named else ""
    return told


def _curves(data: pd.DataFrame, series: Mapping[str, Look], axis: str, width_in: float) -> Figure:
    figure, axes = stacked(len(panels_of(data)), series, "lines", width_in)
    for ax, part in titled(axes, data):
        ax.set_ylabel(axis)
        sorted_curves(ax, part, "speedup", series)
        ratio_axis(ax, LEAST_BAR)
    axes[-1].set_xlabel("matrices, sorted by speed-up")
    return figure


def _means_per_matrix(derived: pd.DataFrame, *, pooled: bool) -> pd.DataFrame:
    groups = groups_of(derived)[0] if pooled else derived["matrix"].astype(str)
    layers = groups != derived["matrix"]
    # Without layers the frame is the one whose means other figures and tables show.
    single = mean_speedups(derived[~layers] if layers.any() else derived, ["matrix"])
    single = single.rename(columns={"matrix": "group"})
    if layers.any():
        of_layers = mean_speedups(derived.assign(group=groups)[layers], ["group"])
        single = pd.concat([single, of_layers], ignore_index=True)
    total = mean_speedups_by_kind(derived)
    alone = total["kinds"].nunique() == 1
    # A mean over all kinds is the mean of one kind again where the common cases are of this kind alone.
    covers = common_kinds(derived)
    alike = [len(covers.get(panel, ())) == 1 for panel in zip(total["op"], total["dtype"], strict=True)]
    repeats = total["kinds"].str.startswith("mixed") & pd.Series(alike, total.index, dtype=bool)
    total = total[~repeats]
    total = total.assign(group=[ALL if alone else f"{ALL} {kind.split(':')[0]}" for kind in total["kinds"]])
    total = total.drop_duplicates(["op", "dtype", "group", "label"])
    data = pd.concat([single, total], ignore_index=True)
    data = data.drop(columns=list(_COMMON.values())).rename(columns=_COMMON)
    columns = ["op", "dtype", "group", "kinds", "label", "implementation", *_COMMON.values(), "wide_share", "problems"]
    return in_panel_order(data[[*columns, "left_out"]])


def _counts(data: pd.DataFrame, groups: Sequence[str]) -> list[str]:
    counts = data.groupby("group")[["cases", "problems"]].max().loc[list(groups)]
    return [f"n = {cases}" + f" of {problems}" * (cases < problems) for cases, problems in counts.to_numpy().tolist()]


@in_style
def speedup_per_width(derived: pd.DataFrame, baseline: str, op: str, dtype: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw speed-ups of one op and dtype against J: a panel per matrix, or one per kind where matrices are many.

    Parameters
    ----------
    derived, baseline, width_in
        As for `speedup_per_matrix`.
    op, dtype : str
        Which rows are drawn.
    """
    part = dict(panels_of(derived))[op, dtype]
    rivals = rivals_of(part)
    matrices = by_size(rivals)
    many = len(matrices) > MOST_GROUPS
    if many:
        means = mean_speedups(part, ["matrix_kind", "width"]).drop(columns=list(_COMMON.values()))
        data = means.rename(columns=_COMMON)
        counts = part.groupby("matrix_kind")["matrix"].nunique()
        data = data.assign(panel=[f"{kind}: {counts[kind]} matrices" for kind in data["matrix_kind"]])
        panels = [(name, name) for name in dict.fromkeys(data["panel"])]
        caption = (
            f"Geometric-mean speed-up over {baseline} (1.0) against J: {op}, {dtype}. A point is over the cases that "
            "all implementations solved; whiskers are 95 % intervals over matrices. " + _NO_WHISKER
        )
    else:
        data = rivals.assign(panel=lambda rows: rows["matrix"], cases=1)
        data = data.sort_values(["matrix", "label", "width"], kind="stable")
        names = short_names(matrices)
        panels = list(zip(names, matrices, strict=True))
        caption = f"Speed-up over {baseline} (1.0) against J: {op}, {dtype}; whiskers are 95 % intervals."
    if (data["speedup"] < LEAST_POINT).any():
        caption += f" Lines that leave the panel go below {LEAST_POINT:g}."
    columns = ["op", "dtype", "panel", "width", "label", "implementation", *_COMMON.values()]
    data = data[data["speedup"].notna()][columns].reset_index(drop=True)
    finding = at_widths(beside_baseline(rivals, baseline, "speedup"), "speedup")
    series = looks_of(data, derived, finding.labels)
    drawn = data[data["label"].isin(series)]
    cells = [(title, drawn[drawn["panel"] == panel]) for title, panel in panels]
    figure = _small_multiples(cells, series, f"{op}, {dtype}: speed-up over {baseline}", width_in)
    heading = f"Speed-up over {baseline} against J: {op}, {dtype}"
    name = f"speedup-per-width-{op}-{dtype}"
    return Plot(name, caption + not_drawn(data, series), figure, data, heading, finding.text)


def _small_multiples(
    cells: Sequence[tuple[str, pd.DataFrame]], series: Mapping[str, Look], title: str, width_in: float
) -> Figure:
    most = 4 if width_in > WIDTH_IN / 2 else 2
    columns = min(most, len(cells))
    rows = ceil(len(cells) / columns)
    figure = figure_with_legend(width_in, 1.75 * rows, series, "lines", title=title)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    room_in = axes_in(width_in) / columns - 0.15
    for ax in axes.flat[len(cells) :]:
        ax.set_visible(False)
    for index, (ax, (name, part)) in enumerate(zip(axes.flat, cells, strict=False)):
        for position, (label, look) in enumerate(series.items()):
            line = part[part["label"] == label].sort_values("width")
            if line.empty:
                continue
            nudge = 2 ** (0.06 * (position - (len(series) - 1) / 2))
            x, y = line["width"].to_numpy(np.float64) * nudge, line["speedup"].to_numpy(np.float64)
            ax.plot(x, y, color=look.colour, marker=look.marker, zorder=3, **line_style(look))
            ends = shown_ends(line["speedup_low"], line["speedup_high"])
            whiskers(ax, x, *ends, color=look.colour, linewidth=1, zorder=2)
        ax.set_title(broken(name, room_in, _TITLE_POINTS), fontsize=_TITLE_POINTS)
        if index % columns == 0:
            ax.set_ylabel("speed-up")
        if index + columns >= len(cells):
            ax.set_xlabel("J")
            ax.tick_params(labelbottom=True)
    widths = sorted({int(width) for _, part in cells for width in part["width"]})
    for ax in axes.flat[: len(cells)]:
        width_axis(ax, widths, room_in)
        ratio_axis(ax, LEAST_POINT / 1.15)
    return figure


@in_style
def speedup_over_size(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw one point per matrix and implementation: speed-up against non-zeros and against the mean row's length.

    Parameters
    ----------
    derived, baseline, width_in
        As for `speedup_per_matrix`.
    """
    data = _means_by_size(derived)
    rivals = rivals_of(derived)
    finding = most_matrices(beside_baseline(rivals, baseline, "speedup"), "speedup")
    series = looks_of(data, derived, finding.labels)
    panels = panels_of(data[data["label"].isin(series)])
    figure = figure_with_legend(width_in, 1.9 * len(panels), series, "points")
    axes = figure.subplots(len(panels), 2, sharex="col", sharey="row", squeeze=False)
    for row, ((op, dtype), part) in zip(axes, panels, strict=True):
        for ax, column in zip(row, ("nnz", "mean_row"), strict=True):
            _points(ax, part, column, series)
            log_ticks(ax.xaxis, data[column], 5 if width_in > COLUMN_IN else 3)
        row[0].set_title(f"{op}, {dtype}", loc="left")
        row[0].set_ylabel(f"speed-up over\n{baseline}")
        ratio_axis(row[0], LEAST_POINT / 1.15)
        row[1].axhline(1, color="black", linewidth=0.8)
        row[1].grid(axis="y")
    axes[-1][0].set_xlabel("non-zeros")
    axes[-1][1].set_xlabel("mean row length")
    caption = (
        f"Geometric-mean speed-up over {baseline} (1.0) of each matrix, over the widths that the implementation "
        "solved, against its non-zeros and its mean row. Hollow points are synthetic matrices and twins; points below "
        f"{LEAST_POINT:g} stand at the lower edge."
    )
    heading = f"Speed-up over {baseline} against the size of the matrix"
    return Plot("speedup-over-size", caption + not_drawn(data, series), figure, data, heading, finding.text)


def _means_by_size(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the means of each matrix of a known size, with its non-zeros and its mean row."""
    sizes = derived[derived["nnz"].notna()].drop_duplicates("matrix").set_index("matrix")
    means = mean_speedups(derived, ["matrix"])
    means = means[means["speedup"].notna() & means["matrix"].isin(sizes.index)]
    data = in_panel_order(
        means.assign(
            nnz=means["matrix"].map(sizes["nnz"]), mean_row=means["matrix"].map(sizes["nnz"] / sizes["num_rows"])
        )
    )
    columns = ["op", "dtype", "matrix", "kinds", "nnz", "mean_row", "label", "implementation"]
    return data[[*columns, "speedup", "speedup_low", "speedup_high", "cases"]]


def _points(ax: Axes, part: pd.DataFrame, column: str, series: Mapping[str, Look]) -> None:
    ax.set_xscale("log")
    for label, look in series.items():
        for made in (False, True):
            points = part[(part["label"] == label) & (part["kinds"].isin(_MADE) == made)]
            if points.empty:
                continue
            ax.plot(
                points[column], points["speedup"].clip(lower=LEAST_POINT), look.marker, zorder=3,
                markerfacecolor="white" if made else look.colour,
                markeredgecolor=look.colour if made else "black", markeredgewidth=1.1 if made else 0.4,
            )  # fmt: skip
