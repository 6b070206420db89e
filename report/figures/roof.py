"""Figures of how near cases come to their roofs: the frozen roof of an H200, and that of the device's own rates."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from spmark.report.analysis import roof as roofs
from spmark.report.analysis.cases import in_panel_order
from spmark.report.figures.findings import leading
from spmark.report.figures.panels import axes_in, by_panel, grouped_bars, name_groups, write_value
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, in_style
from spmark.report.tables.table import Chapter, Table

_MARKS = {
    roofs.Bound.LAUNCH: ("o", "○ launch"),
    roofs.Bound.BYTES: ("s", "□ bytes"),
    roofs.Bound.FLOPS: ("D", "◇ flops"),
    roofs.Bound.GATHER: ("^", "△ L2"),
    roofs.Bound.BEYOND: ("v", "▽ beyond L2"),
}
"""Marker of a case, and the words for it in the legend's title, by the bound that holds."""
_TOP = 1.3
"""Where the axis of shares ends: the values of means stand above the roof."""
_FROZEN = (
    f"launch {roofs.FROZEN_LAUNCH_US:g} µs, every byte once at {roofs.FROZEN_BYTES_PER_S / 1e9:,.0f} GB/s, "
    f"gathered rows at {roofs.FROZEN_GATHER_BYTES_PER_S / 1e12:g} TB/s"
)
ROOFS = {"frozen": roofs.frozen_times, "measured": roofs.measured_times}


def has_roof(derived: pd.DataFrame, roof: str) -> bool:
    """Tell whether any case has a roof, ``frozen`` or ``measured``."""
    return not roofs.under_roof(derived, ROOFS[roof](derived)).empty


@in_style
def roof_shares(derived: pd.DataFrame, roof: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw the share of a roof that each system reaches.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `has_roof` must hold.
    roof : str
        ``frozen``, of `FROZEN_DEVICE`, or ``measured``, by the rates that calibrating the records' device has measured.
    width_in : float
        Width of the figure in inches.
    """
    times = ROOFS[roof](derived)
    launch = "" if times[roofs.Bound.LAUNCH].isna().all() else "launch, "
    name, rates = "roofline", f"the device's measured rates ({launch}every byte once, flops, gathered rows)"
    if roof == "frozen":
        name, rates = "frozen-roof", f"fixed rates of {roofs.FROZEN_DEVICE} ({_FROZEN})"
    cases = roofs.under_roof(derived, times)
    rows = in_panel_order(roofs.mean_shares(cases)).assign(group=lambda means: means["side"])
    rows = rows.rename(columns={"roof_share": "value", "roof_share_low": "low", "roof_share_high": "high"})
    cases = in_panel_order(cases)
    finding = leading(cases, "share", "comes nearest to the roof", "{:.0%}".format, case=("matrix", "width"))
    series = looks_of(cases, derived, finding.labels)
    title = "  ".join(words for bound, (_, words) in _MARKS.items() if bound in set(cases["bound"]))
    figure, cells = by_panel(rows, series, "bars", width_in, columns=1, title=title)
    for ax, part in cells:
        most = part.groupby("side")["cases"].max()
        sides = [side for side in roofs.SIDES if side in most]
        room_in = axes_in(width_in) / len(sides)
        bar, bars = grouped_bars(ax, part, sides, series, room_in, start=0.0)
        _points(ax, cases.merge(bars[["op", "dtype", "side", "label", "x"]]), bar)
        for row in bars.to_dict("records"):
            write_value(ax, (row["x"], 1.03), f"{row['value']:.0%}", bar * room_in)
        name_groups(ax, sides, [f"n = {most[side]}" for side in sides], room_in)
        ax.set(ylabel="share of roof", ylim=(0, _TOP), yticks=[0, 0.25, 0.5, 0.75, 1])
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.grid(axis="y")
        ax.axhline(1, color="black", linewidth=0.8)
    caption = (
        f"Roof, the least time of a run by {rates}, over its time, at most 100 %: geometric means with 95 % intervals, "
        f"by the length of the roof, with each case by the part of its roof that takes the longest"
        f"{not_drawn(cases, series)}."
    )
    passing = f" {cases['passes'].sum():,} of {len(cases):,} cases pass the roof and count as 100 %."
    text = finding.text + passing * bool(cases["passes"].any())
    return Plot(name, caption, figure, cases, f"Share of the roof by {rates.partition(' (')[0]}", text)


def _points(ax: Axes, cases: pd.DataFrame, bar: float) -> None:
    """Draw the cases over their bars, in rising order from left to right."""
    rising = cases.sort_values("share", kind="stable")
    of_bar = rising.groupby(["side", "label"])["share"]
    x = rising["x"] + 0.8 * bar * ((of_bar.cumcount() + 0.5) / of_bar.transform("size") - 0.5)
    for bound, (marker, _) in _MARKS.items():
        here = rising["bound"] == bound
        ax.plot(x[here], rising.loc[here, "share"], marker, color="black", markersize=2.5, markerfacecolor="white",
                markeredgewidth=0.4, zorder=4)  # fmt: skip


def roof_table(derived: pd.DataFrame) -> Table:
    """Give the mean shares of both roofs as a table, empty where no case has one."""
    means = [
        roofs.mean_shares(roofs.under_roof(derived, times(derived))).assign(roof=roof) for roof, times in ROOFS.items()
    ]
    frame = pd.concat([part for part in means if len(part)] or means, ignore_index=True)
    note = (
        f"A roof is the least time of a run. Geometric means of roof over median, at most 1 for a case, with 95 % "
        f"intervals over matrices. The frozen roof, by fixed rates, is that of {roofs.FROZEN_DEVICE} alone."
    )
    columns = ["roof", *(name for name in frame if name != "roof")]
    return Table("roofs", "Shares of the roof", note, frame[columns], Chapter.CASES)
