"""Figures of speed-ups over the baseline: per matrix, against J, and against the matrix's size and row length.

Speed-ups are ratios, so their axis is logarithmic and bars start at 1: as tall upwards for twice as fast as downwards
for half. A bar is a mean over the cases that all implementations drawn in its group solved.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from spmark.records.schema import MatrixKind
from spmark.report.analysis import cases as groups
from spmark.report.analysis.cases import WIDE_MARK, WIDE_SPEEDUP
from spmark.report.analysis.means import MOSTLY, common_kinds, kinds, mean_speedups, mean_speedups_by_kind
from spmark.report.figures import panels
from spmark.report.figures.findings import Finding, at_widths, leading
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN, Look, in_style

LEAST_BAR = 1 / 6
"""Bars of speed-ups are cut here: a dense product on a graph would make all others look alike."""
LEAST_POINT = 1 / 10
"""Points below are drawn at the edge, and lines leave their panel there."""
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
    rivals = derived[~derived["is_baseline"]]
    _, matrices = groups.groups_of(derived)
    pools = len(matrices) < rivals["matrix"].nunique()
    curves = len(matrices) > (groups.MOST_POOLED if pools else groups.MOST_GROUPS)
    data = _means_per_matrix(derived, pooled=not curves)
    axis = f"speed-up over\n{baseline}"
    finding = _fastest(derived, baseline)
    series = looks_of(data, derived, finding.labels)
    if curves:
        shown = data[data["group"].isin(rivals["matrix"])]
        figure = panels.curves(shown, "speedup", series, width_in, axis=axis, least=LEAST_BAR)
        caption = f"of each matrix ({kinds(rivals)}), sorted for every implementation on its own"
    else:
        totals = [group for group in dict.fromkeys(data["group"]) if group not in matrices]
        wide = data["wide_share"] >= MOSTLY
        counts = data.groupby(["op", "dtype", "group"])[["cases", "problems"]].transform("max")
        notes = [f"n = {n}" + f" of {every}" * (n < every) for n, every in counts.itertuples(index=False)]
        figure = panels.by_group(
            data.assign(wide=wide, note=notes), series, ("speedup", "speedup_low", "speedup_high"),
            [*matrices, *totals], width_in, axis=axis, least=LEAST_BAR,
            title=f"{WIDE_MARK} half of its cases vary by more than ±{WIDE_SPEEDUP:.0%}" if wide.any() else "",
        )  # fmt: skip
        caption = (
            f"on each matrix{' or pool of layers' if pools else ''}, with 95 % intervals, over the n cases that all "
            "implementations with a bar solved (×: solved half of them or fewer)"
        )
    return Plot(
        "speedup-per-matrix",
        f"Geometric-mean speed-up over {baseline} (1.0, its time over the other's) {caption}{not_drawn(data, series)}.",
        figure,
        data,
        f"Speed-up over {baseline}{', over all matrices, sorted' if curves else ' on each matrix'}",
        finding.text,
    )


def _fastest(derived: pd.DataFrame, baseline: str) -> Finding:
    cases = groups.beside_baseline(derived[~derived["is_baseline"]], baseline, "speedup")
    return leading(cases, "speedup", "is fastest", panels.said_ratio)


def _means_per_matrix(derived: pd.DataFrame, *, pooled: bool) -> pd.DataFrame:
    """Give the mean of each matrix, or of each group where layers are pooled, and those of all matrices by kind."""
    pools = groups.groups_of(derived)[0] if pooled else derived["matrix"].astype(str)
    layers = pools != derived["matrix"]
    total = mean_speedups_by_kind(derived)
    # A mean over all kinds is the mean of one kind again where the common cases are of this kind alone.
    covers = common_kinds(derived)
    alike = [len(covers.get(panel, ())) == 1 for panel in zip(total["op"], total["dtype"], strict=True)]
    alone = total["kinds"].nunique() == 1
    total = total[~(total["kinds"].str.startswith("mixed") & pd.Series(alike, total.index, dtype=bool))]
    total = total.assign(
        group=[groups.ALL if alone else f"{groups.ALL} {kind.split(':')[0]}" for kind in total["kinds"]]
    )
    parts = [
        mean_speedups(derived[~layers], ["matrix"]).rename(columns={"matrix": "group"}),
        *([mean_speedups(derived.assign(group=pools)[layers], ["group"])] if layers.any() else []),
        total.drop_duplicates(["op", "dtype", "group", "label"]),
    ]
    data = _in_common(pd.concat(parts, ignore_index=True))
    columns = ["op", "dtype", "group", "kinds", "label", "implementation", *_COMMON.values(), "wide_share", "problems"]
    return groups.in_panel_order(data[[*columns, "left_out"]])


def _in_common(means: pd.DataFrame) -> pd.DataFrame:
    """Let ``speedup`` be the mean over the common cases."""
    return means.drop(columns=list(_COMMON.values())).rename(columns=_COMMON)


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
    part = dict(groups.panels_of(derived))[op, dtype]
    rivals = part[~part["is_baseline"]]
    matrices = groups.by_size(rivals)
    if len(matrices) > groups.MOST_GROUPS:
        data = _in_common(mean_speedups(part, ["matrix_kind", "width"]))
        counts = part.groupby("matrix_kind")["matrix"].nunique()
        data = data.assign(panel=[f"{kind}: {counts[kind]} matrices" for kind in data["matrix_kind"]])
        titles = {name: name for name in data["panel"]}
        over = ", over the cases that all implementations solved"
    else:
        data = rivals.assign(panel=rivals["matrix"], cases=1).sort_values(["matrix", "label", "width"], kind="stable")
        titles = dict(zip(matrices, panels.short_names(matrices), strict=True))
        over = ""
    columns = ["op", "dtype", "panel", "width", "label", "implementation", *_COMMON.values()]
    data = data[data["speedup"].notna()][columns].reset_index(drop=True)
    finding = at_widths(groups.beside_baseline(rivals, baseline, "speedup"), "speedup")
    series = looks_of(data, derived, finding.labels)
    heading = f"Speed-up over {baseline} against J: {op}, {dtype}"
    figure = _per_panel(data[data["label"].isin(series)], titles, series, heading, width_in)
    caption = (
        f"Geometric-mean speed-up over {baseline} (1.0) against J with 95 % intervals{over}{not_drawn(data, series)}."
    )
    return Plot(f"speedup-per-width-{op}-{dtype}", caption, figure, data, heading, finding.text)


def _per_panel(
    data: pd.DataFrame, titles: Mapping[str, str], series: Mapping[str, Look], heading: str, width_in: float
) -> Figure:
    columns = min(4 if width_in > COLUMN_IN else 2, len(titles))
    room_in = width_in / columns - 0.35
    figure, axes = panels.grid(
        len(titles), series, "lines", width_in, 1.75, columns=columns, title=heading, sharex=True, sharey=True
    )
    widths = sorted(set(data["width"]))
    for index, (ax, (panel, title)) in enumerate(zip(axes, titles.items(), strict=True)):
        panels.lines(ax, data[data["panel"] == panel], "width", "speedup", series, nudge=0.06)
        ax.set_title(panels.wrapped(title, room_in), fontsize=8)
        if index % columns == 0:
            ax.set_ylabel("speed-up")
        if index + columns >= len(titles):
            ax.set_xlabel("J")
            ax.tick_params(labelbottom=True)
    for ax in axes:
        ax.set_xscale("log", base=2)
        panels.value_ticks(ax.xaxis, widths, room_in, log=True)
        ax.set_xlim(widths[0] / 1.4, widths[-1] * 1.4)
        panels.ratio_axis(ax, LEAST_POINT / 1.15)
    return figure


@in_style
def speedup_over_size(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw one point per matrix and implementation: speed-up against non-zeros and against the mean row's length.

    Parameters
    ----------
    derived, baseline, width_in
        As for `speedup_per_matrix`.
    """
    sizes = derived[derived["nnz"].notna()].drop_duplicates("matrix").set_index("matrix")
    means = mean_speedups(derived, ["matrix"])
    means = means[means["speedup"].notna() & means["matrix"].isin(sizes.index)]
    nnz, num_rows = means["matrix"].map(sizes["nnz"]), means["matrix"].map(sizes["num_rows"])
    columns = ["op", "dtype", "matrix", "kinds", "nnz", "mean_row", "label", "implementation", *_COMMON.values()]
    data = groups.in_panel_order(means.assign(nnz=nnz, mean_row=nnz / num_rows))[columns]
    finding = _fastest(derived, baseline)
    series = looks_of(data, derived, finding.labels)
    parts = groups.panels_of(data[data["label"].isin(series)])
    figure, axes = panels.grid(2 * len(parts), series, "points", width_in, 1.9, columns=2, sharex="col", sharey="row")
    for at, ((op, dtype), part) in enumerate(parts):
        made = part["kinds"].isin(_MADE)
        cut = part.assign(speedup=part["speedup"].clip(lower=LEAST_POINT))
        for ax, column in zip(axes[2 * at :], ("nnz", "mean_row"), strict=False):
            panels.scattered(ax, cut[~made], column, "speedup", series)
            panels.scattered(ax, cut[made], column, "speedup", series, markerfacecolor="white")
            panels.log_ticks(ax.xaxis, 5 if width_in >= WIDTH_IN else 3)
            panels.ratio_axis(ax, LEAST_POINT / 1.15)
        axes[2 * at].set_title(f"{op}, {dtype}", loc="left")
        axes[2 * at].set_ylabel(f"speed-up over\n{baseline}")
    axes[-2].set_xlabel("non-zeros")
    axes[-1].set_xlabel("mean row length")
    caption = (
        f"Geometric-mean speed-up over {baseline} (1.0) of each matrix, over the widths that the implementation solved "
        f"(hollow: synthetic matrices and twins; at the edge: below {LEAST_POINT:g}{not_drawn(data, series)})."
    )
    heading = f"Speed-up over {baseline} against the size of the matrix"
    return Plot("speedup-over-size", caption, figure, data, heading, finding.text)
