"""Figures of how near cases come to their roofs: the frozen roof of an H200, and that of the device's own rates."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from spmark.report.analysis.groups import in_panel_order, panels_of
from spmark.report.analysis.roof import (
    FROZEN_BYTES_PER_S,
    FROZEN_DEVICE,
    FROZEN_GATHER_BYTES_PER_S,
    FROZEN_LAUNCH_US,
    SIDES,
    SPLIT_US,
    Bound,
    frozen_times,
    mean_shares,
    measured_times,
    under_roof,
)
from spmark.report.figures.bars import Places, grouped_bars, write_value
from spmark.report.figures.findings import Finding, counted, leading, sentence
from spmark.report.figures.names import name_groups
from spmark.report.figures.panels import axes_in, stacked, titled
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, in_style
from spmark.report.tables.table import Chapter, Table

_MARKS = {
    Bound.LAUNCH: ("o", "○ launch"),
    Bound.BYTES: ("s", "□ bytes"),
    Bound.FLOPS: ("D", "◇ flops"),
    Bound.GATHER: ("^", "△ L2"),
    Bound.BEYOND: ("v", "▽ beyond L2"),
}
"""Marker of a case, and the words for it in the legend's title, by the bound that holds."""
_HEADINGS = {
    "frozen-roof": f"Share of the frozen roof of {FROZEN_DEVICE} (the least time by fixed rates)",
    "roofline": "Share of the roof of the device's measured rates (the least time by these rates)",
}
_TOP = 1.3
"""Where the axis of shares ends: the values of means stand above the roof."""
_TIMES = {"frozen": frozen_times, "measured": measured_times}
_MANY_PASS = 0.1
"""Share of a label's cases from which its mean says little: all that pass the roof count as 100 %."""


def has_roof(derived: pd.DataFrame, roof: str) -> bool:
    """Tell whether any case has a roof, ``frozen`` or ``measured``."""
    return not under_roof(derived, _TIMES[roof](derived)).empty


@in_style
def frozen_roof(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the share of the frozen roof that each system reaches.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it, of `FROZEN_DEVICE`.
    width_in : float
        Width of the figure in inches.
    """
    about = (
        f"The frozen roof is the least time of a run by fixed rates of {FROZEN_DEVICE}, so that figures of different "
        f"days compare: {FROZEN_LAUNCH_US:g} µs of launch, and the longer of reading and writing every byte once at "
        f"{FROZEN_BYTES_PER_S / 1e9:,.0f} GB/s and reading a row of a dense operand for every non-zero at "
        f"{FROZEN_GATHER_BYTES_PER_S / 1e12:g} TB/s."
    )
    return _drawn("frozen-roof", about, under_roof(derived, frozen_times(derived)), derived, width_in)


@in_style
def measured_roof(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the share of the roof by the rates that calibrating the records' device has measured.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it, of any device with measured rates.
    width_in : float
        Width of the figure in inches.
    """
    times = measured_times(derived)
    about = (
        "The roof is the least time of a run by the rates that were measured on this device: the launch with the first "
        "loads, and the longest of reading and writing every byte once at its copy bandwidth, the flops at its highest "
        "rate and reading a row of a dense operand for every non-zero at the rate of random rows of that length."
    )
    if times[Bound.LAUNCH].isna().all():
        about += " Nobody measured the launch and the first loads here, so the roof leaves these out."
    return _drawn("roofline", about, under_roof(derived, times), derived, width_in)


def roof_table(derived: pd.DataFrame) -> Table:
    """Give the mean shares of both roofs as a table, empty where no case has one."""
    means = [mean_shares(under_roof(derived, times(derived))).assign(roof=roof) for roof, times in _TIMES.items()]
    frame = pd.concat([part for part in means if len(part)] or means, ignore_index=True)
    note = (
        f"A roof is the least time of a run. Geometric means of roof over median, at most 1 for a case, with 95 % "
        f"intervals over matrices. The frozen roof, by fixed rates, is that of {FROZEN_DEVICE} alone."
    )
    columns = ["roof", *(name for name in frame if name != "roof")]
    return Table("roofs", "Shares of the roof", note, frame[columns], Chapter.CASES)


def _drawn(name: str, about: str, cases: pd.DataFrame, derived: pd.DataFrame, width_in: float) -> Plot:
    means = in_panel_order(mean_shares(cases))
    cases = in_panel_order(cases)
    finding = _nearest(cases)
    series = looks_of(cases, derived, finding.labels)
    drawn, bounds = cases[cases["label"].isin(series)], set(cases["bound"])
    title = "  ".join(words for bound, (_, words) in _MARKS.items() if bound in bounds)
    figure, axes = stacked(len(panels_of(drawn)), series, "bars", width_in, title=title)
    rows = means.rename(columns={"roof_share": "value", "roof_share_low": "low", "roof_share_high": "high"})
    rows = rows[rows["label"].isin(series)].assign(wide=False)
    for (ax, part), (_, points) in zip(titled(axes, rows), panels_of(drawn), strict=True):
        sides = [side for side in SIDES if side in set(part["side"])]
        room_in = axes_in(width_in) / len(sides)
        bar, places = grouped_bars(ax, part.assign(group=part["side"]), sides, series, room_in, start=0.0)
        _points(ax, points, bar, places)
        _values(ax, part, places, bar * room_in)
        name_groups(ax, sides, [f"n = {part.loc[part['side'] == side, 'cases'].max()}" for side in sides], room_in)
        ax.set_ylabel("share of roof")
        ax.set_ylim(0, _TOP)
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
        ax.grid(axis="y")
        ax.axhline(1, color="black", linewidth=0.8)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    caption = (
        f"{about} 100 % means that a run takes no longer than its roof. A run can be faster, since a kernel may find "
        "rows in the small L1 cache; such a run counts as 100 %. Bars are geometric means with 95 % intervals over "
        f"matrices. Cases with a roof over {SPLIT_US:g} µs stand apart from those with a shorter roof; "
        "n is the most cases of a bar. Points are cases, by the part of the roof "
        "that takes the longest: "
        f"{', '.join(f'{words[0]} {bound}' for bound, (_, words) in _MARKS.items() if bound in bounds)}. The means "
        "stand above their bars."
    )
    return Plot(name, caption + not_drawn(cases, series), figure, cases, _HEADINGS.get(name, ""), finding.text)


def _nearest(cases: pd.DataFrame) -> Finding:
    """Say in one sentence who comes nearest to the roof, and where many cases pass it how many do."""
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(cases):
        passes = part.groupby("label")["passes"].agg(["mean", "sum", "size"])
        many = passes[passes["mean"] >= _MANY_PASS].sort_values("sum", ascending=False, kind="stable")
        if many.empty:
            lead = leading(part, "share", "comes nearest to the roof", _said_share, case=("matrix", "width"))
            told.append(lead.text.removesuffix("."))
            named += lead.labels
            continue
        most, (_, its, of) = str(many.index[0]), many.iloc[0]
        alone = f"; {most} has the most, {its:.0f} of {of:.0f}" if list(many["sum"]).count(its) == 1 else ""
        passing = f"{part['passes'].sum():,} of {counted(len(part), 'case')} pass the roof"
        told.append(f"{op}, {dtype}: {passing}, so that shares name no leader{alone}")
        named.append(most)
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


def _said_share(share: float) -> str:
    return f"{share:.0%}"


def _values(ax: Axes, means: pd.DataFrame, places: Places, bar_in: float) -> None:
    """Write the means above the roof, where no point stands; upright over narrow bars."""
    for row in means.to_dict("records"):
        place = places.get((row["side"], row["label"]))
        if place is not None:
            write_value(ax, (place, 1.03), f"{row['value']:.0%}", bar_in)


def _points(ax: Axes, cases: pd.DataFrame, bar: float, places: Places) -> None:
    """Draw the cases over their bars, in rising order from left to right."""
    rising = cases.sort_values("share", kind="stable")
    of_bar = rising.groupby(["side", "label"])["share"]
    spread = (of_bar.cumcount() + 0.5) / of_bar.transform("size") - 0.5
    at = np.array([places[key] for key in zip(rising["side"], rising["label"], strict=True)])
    x = at + 0.8 * bar * spread
    for bound, (marker, _) in _MARKS.items():
        here = rising["bound"] == bound
        if here.any():
            ax.plot(x[here], rising.loc[here, "share"], marker, color="black", markersize=2.5, markerfacecolor="white",
                    markeredgewidth=0.4, zorder=4)  # fmt: skip
