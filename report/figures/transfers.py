"""Figures of studies of moved cost models: methods side by side, matrices, training, sizes.

A panel is one source, target, machine and operator. Every figure shows what any method could gain (the optimum, or the
ceiling of a score), and the baselines beside; where a baseline is missing the caption says that nothing is compared.
After figures 4 to 12 of the paper that ``methods.yaml`` names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import isfinite, nan
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spmark.report.analysis.methods import SAID, Choice, MovedFigure, known_methods
from spmark.report.analysis.statistics import mean_of
from spmark.report.analysis.transfers import MISSING, PANEL, Moved, panels_of
from spmark.report.figures.findings import counted, sentence
from spmark.report.figures.panels import (
    axes_in,
    grid,
    grouped_bars,
    line_style,
    name_groups,
    panel_room_in,
    ratio_axis,
    value_ticks,
)
from spmark.report.figures.plot import Plot
from spmark.report.figures.style import WIDTH_IN, Look, in_style

SCORES = {"opa": "OPA", "tau": "tau"}
"""Scores of an order of configs, with the names that figures give them."""
HELD = "held_"
"""Prefix of the names of values on samples that were held out of training."""
_CHOICES = {SAID["top1"]: Look("#0072b2", "o"), SAID["top5"]: Look("#6690ad", "s", "////")}
_OPTIMUM = "optimum"
_CURVES = {"prl": ("ranking loss", "#d55e00"), "opa": (SCORES["opa"], "#0072b2"), "tau": (SCORES["tau"], "#009e73")}
_PANEL_IN = 2.2
_BARS_IN = 1.9
_BEYOND = 1.25
"""What a logarithmic axis shows beyond its values, as a factor."""
_MARGIN = 0.08
"""The same of an axis of scores, as a difference."""


def moved_plots(moved: Moved) -> list[Callable[[float], Plot]]:
    """List the figures that a study can fill, each as a function of the width."""
    kinds = [(figure, *_KINDS[figure.kind]) for figure in known_methods().figures]
    return [partial(draw, moved, figure) for figure, draw, shown in kinds if shown(moved, figure)]


def undrawn(moved: Moved) -> list[str]:
    """Name the figures that a study cannot fill."""
    return [figure.name for figure in known_methods().figures if not _KINDS[figure.kind][1](moved, figure)]


@in_style
def method_bars(moved: Moved, figure: MovedFigure, width_in: float = WIDTH_IN) -> Plot:
    """Draw the speed-up over the default of each method's first choice and best of five, baselines behind."""
    data = bars_of(moved, figure)
    panels = [(title, part, list(dict.fromkeys(part["group"]))) for title, part in panels_of(data)]
    canvas, axes = grid(len(panels), _CHOICES, "bars", width_in, _BARS_IN, columns=1)
    below_in = []
    for ax, (title, part, here) in zip(axes, panels, strict=True):
        room_in = axes_in(width_in) / len(here)
        _limits(ax, part["value"], part["optimum_speedup"])
        whiskers = part[["low", "high"]].clip(*ax.get_ylim())
        grouped_bars(ax, part.assign(**whiskers), here, _CHOICES, room_in, start=1.0, valued=here)
        own = sum(not baseline for baseline in part.drop_duplicates("group")["is_baseline"])
        ax.axvspan(own - 0.5, len(here) - 0.45, color="#f3f3f3", zorder=-1, linewidth=0)
        _optimum(ax, part["optimum_speedup"].iloc[0])
        below_in.append(name_groups(ax, here, [""] * len(here), room_in))
        _limits(ax, part["value"], part["optimum_speedup"])
        ratio_axis(ax, headroom=0.35)
        ax.set_ylabel("speed-up")
        ax.set_title(f"{title}\noptimum {part['optimum_speedup'].iloc[0]:.3g}×", loc="left")
    canvas.set_figheight(canvas.get_figheight() + len(panels) * max(below_in))
    caption = (
        f"{figure.shows}: speed-up over the platform's default config, geometric means over matrices. Grey: baselines. "
        "Dashed: the optimum of the same configs. ×: no result."
    )
    finding = ahead(moved, set(data["method"]))
    return Plot(figure.name, _told(caption, _seeds(data), _beside(moved)), canvas, data, figure.shows, finding)


def bars_of(moved: Moved, figure: MovedFigure) -> pd.DataFrame:
    """Give a row for each panel, method of a figure and choice: ``value``, ``low`` and ``high``; NaN without one."""
    methods, rows = known_methods(), []
    for _, part in panels_of(moved.gains[moved.gains["headline"]]):
        known = {row["method"]: row for row in part.to_dict("records")}
        one = next(iter(known.values()))
        baselines = methods.beside(one["target"], one["op"])
        for name in [*(method for method in figure.methods if method in known), *baselines]:
            choices = baselines[name].choices if name in baselines else tuple(SAID)
            for choice in choices:
                rows.append(
                    {key: one[key] for key in (*PANEL, "simulated", "optimum_speedup")}
                    | {"method": name, "group": methods.title(name), "is_baseline": name in baselines}
                    | _value(known.get(name), choice)
                )
    return pd.DataFrame(rows)


def _value(row: Mapping[Any, Any] | None, choice: Choice) -> dict[str, Any]:
    name = f"{choice}_speedup"
    ends = {"value": nan, "low": nan, "high": nan, "seeds": 0, "matrices": 0}
    if row is not None:
        ends = {"value": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"],
                "seeds": row["seeds"], "matrices": row["matrices"]}  # fmt: skip
    return {"label": SAID[choice], **ends}


@in_style
def each_matrix(moved: Moved, figure: MovedFigure, width_in: float = WIDTH_IN) -> Plot:
    """Draw the speed-up of the subject's first choice on each matrix, in rising order, with optimum and baselines."""
    methods = known_methods()
    data = _ranked(moved)
    panels = panels_of(data)
    names = [method for method in methods.methods if method in set(data["label"])]
    series = {with_choice(name): _look(name) for name in names} | {_OPTIMUM: Look("#000000", "_")}
    canvas, axes = grid(len(panels), series, "points", width_in, columns=1)
    for ax, (title, part) in zip(axes, panels, strict=True):
        optimum = part.drop_duplicates("matrix").sort_values("rank")
        ax.step(optimum["rank"], optimum["optimum_speedup"], where="mid", color="#000000", linewidth=0.8)
        for name in reversed(names):
            own, look = part[part["label"] == name], _look(name)
            main = name == methods.subject
            ax.plot(own["rank"], own["speedup"], look.marker, color=look.colour, markersize=4.5 if main else 2.5,
                    markeredgecolor="black", markeredgewidth=0.3, zorder=4 if main else 3)  # fmt: skip
        ratio_axis(ax)
        ax.set(xlim=(0.5, len(optimum) + 0.5), xlabel="matrices, by the speed-up", ylabel="speed-up")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_title(title, loc="left")
    caption = (
        f"{figure.shows}: speed-up over the default of {methods.title(methods.subject)}'s first choice, in rising "
        "order, with the baselines on the same matrix and the optimum as steps; geometric means over seeds."
    )
    told = []
    for title, part in panels_of(data):
        own = part[part["label"] == methods.subject]
        share = mean_of(own["speedup"] / own["optimum_speedup"])
        told.append(f"{title}: {methods.title(methods.subject)} reaches {share:.0%} of the optimum in the mean")
    return Plot(figure.name, _told(caption, _beside(moved)), canvas, data, figure.shows, sentence(told))


def _ranked(moved: Moved) -> pd.DataFrame:
    """Give a row for each panel, matrix and drawn method, with the matrix's place by the subject's speed-up."""
    methods, parts = known_methods(), []
    for _, part in panels_of(moved.matrices):
        one = part.iloc[0]
        shown: dict[str, Choice] = {methods.subject: "top1"}
        shown |= {name: of.choices[0] for name, of in methods.beside(one["target"], one["op"]).items()}
        subject = part[part["method"] == methods.subject].set_index("matrix")["top1_speedup"]
        rank = subject.rank(method="first").astype(int)
        own = part[part["method"].isin(shown) & part["matrix"].isin(rank.index)]
        speedup = [row[f"{shown[row['method']]}_speedup"] for row in own.to_dict("records")]
        ranked = own.assign(label=own["method"], speedup=speedup, rank=own["matrix"].map(rank))
        columns = [*PANEL, "simulated", "rank", "matrix", "nnz", "label", "speedup", "optimum_speedup"]
        parts.append(ranked[columns].sort_values(["rank", "label"], kind="stable"))
    return pd.concat(parts, ignore_index=True)


@in_style
def training_curves(moved: Moved, figure: MovedFigure, width_in: float = WIDTH_IN) -> Plot:
    """Draw loss, ordered pair accuracy and tau over the epochs of both phases, with the ceilings of the scores."""
    parts = [
        (f"{title}\n{phase}", own)
        for title, part in panels_of(moved.curves)
        for phase, own in part.groupby("phase", sort=False)
    ]
    series = {name: Look(colour, "") for name, colour in _CURVES.values()}
    series |= {f"{name}, held out": Look(colour, "", "////") for name, colour in _CURVES.values()}
    canvas, axes = grid(len(parts), series, "lines", width_in, _PANEL_IN)
    for ax, (title, part) in zip(axes, parts, strict=True):
        for value, own in part.groupby("value_of", sort=False):
            colour = _CURVES[str(value).removeprefix(HELD)][1]
            dashed = "--" if str(value).startswith(HELD) else "-"
            ax.plot(own["epoch"], own["value"], dashed, color=colour, linewidth=1.0, zorder=3)
            ax.fill_between(own["epoch"], own["value_low"], own["value_high"], color=colour, alpha=0.15, linewidth=0)
        for score, ceiling in _ceilings(moved, part):
            ax.axhline(ceiling, color=_CURVES[score][1], linestyle=":", linewidth=0.9)
        ax.set_ylim(min(0.0, part["value"].min()) - _MARGIN, max(1.0, part["value"].max()) + _MARGIN)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.set_xlabel("epoch")
        ax.set_title(title, loc="left")
        ax.grid(axis="y")
    caption = (
        f"{figure.shows}, means over seeds with Student's interval as a band. Dotted: OPA and tau of the first half "
        "of the evaluation samples held against the second half, which no order of configs exceeds reliably. Bands "
        "that leave the panel are cut."
    )
    finding = while_training(moved.curves)
    return Plot(figure.name, _told(caption, _beside(moved)), canvas, moved.curves, figure.shows, finding)


def _ceilings(moved: Moved, part: pd.DataFrame) -> Iterator[tuple[str, float]]:
    gains = moved.gains.merge(part[PANEL].drop_duplicates(), on=PANEL)
    for score in SCORES:
        ceiling = float(gains[f"{score}_ceiling_score"].iloc[0])
        if isfinite(ceiling):
            yield score, ceiling


@in_style
def over_sizes(moved: Moved, figure: MovedFigure, width_in: float = WIDTH_IN) -> Plot:
    """Draw the first choice's speed-up over the number of matrices to learn from; level lines do not depend on it."""
    data = sizes_of(moved, figure)
    panels = panels_of(data)
    names = [name for name in known_methods().methods if name in set(data["label"])]
    series = {with_choice(name): _look(name) for name in names} | {_OPTIMUM: Look("#000000", "", "////")}
    canvas, axes = grid(len(panels), series, "lines", width_in, _PANEL_IN)
    for ax, (title, part) in zip(axes, panels, strict=True):
        for name in names:
            own, look = part[part["label"] == name], _look(name)
            curve = own[own["matrices_used"] > 0]
            if len(curve):
                ax.plot(curve["matrices_used"], curve["value"], color=look.colour, marker=look.marker,
                        **line_style(look), zorder=4)  # fmt: skip
                ax.fill_between(curve["matrices_used"], curve["low"], curve["high"], color=look.colour, alpha=0.15)
            for level in own.loc[own["matrices_used"] == 0, "value"].dropna():
                ax.plot([0.02, 0.98], [level, level], color=look.colour, marker=look.marker, linewidth=0.9,
                        markeredgecolor="black", markeredgewidth=0.4, zorder=2,
                        transform=ax.get_yaxis_transform())  # fmt: skip
        _optimum(ax, part["optimum_speedup"].iloc[0])
        _limits(ax, part["value"], part["optimum_speedup"])
        ratio_axis(ax)
        ax.set(xscale="log", xlabel=f"{figure.axis.split('_')[0]} matrices", ylabel="speed-up")
        ticks = sorted(set(part.loc[part["matrices_used"] > 0, "matrices_used"]))
        value_ticks(ax.xaxis, ticks, panel_room_in(width_in), log=True)
        ax.set_title(title, loc="left")
    caption = (
        f"{figure.shows}: speed-up of the first choice over the default config, geometric means over matrices. "
        "Level lines do not depend on the number. Dashed: the optimum."
    )
    finding = by_sizes(data, figure)
    return Plot(figure.name, _told(caption, _seeds(data), _beside(moved)), canvas, data, figure.shows, finding)


def sizes_of(moved: Moved, figure: MovedFigure) -> pd.DataFrame:
    """Give a row for each panel, method and size, and one with 0 ``matrices_used`` for each level line.

    Columns: the panel's, ``label``, ``matrices_used``, ``value`` with ``low`` and ``high``, ``optimum_speedup``.
    """
    methods, rows = known_methods(), []
    other = "source_matrices" if figure.axis == "target_matrices" else "target_matrices"
    for _, part in panels_of(moved.gains):
        one = part.iloc[0]
        headline = part[part["headline"]].set_index("method")
        alike = {key: one[key] for key in (*PANEL, "simulated", "optimum_speedup")}
        for name in figure.methods:
            fixed = headline[other].get(name)
            own = part[(part["method"] == name) & (part[other] == fixed) & (part[figure.axis] > 0)]
            for row in own.sort_values(figure.axis).to_dict("records"):
                rows.append(alike | {"method": name, "matrices_used": row[figure.axis]} | _value(row, "top1"))
        level: dict[str, Choice] = dict.fromkeys(figure.held, "top1")
        baselines = methods.beside(one["target"], one["op"])
        level |= {name: of.choices[0] for name, of in baselines.items() if name not in figure.methods}
        for name, choice in level.items():
            found = headline.loc[name].to_dict() if name in headline.index else None
            rows.append(alike | {"method": name, "matrices_used": 0} | _value(found, choice))
    return pd.DataFrame(rows).assign(label=lambda frame: frame["method"])


def _has_sizes(moved: Moved, figure: MovedFigure) -> bool:
    """Tell whether any curve of a figure over sizes has two points."""
    data = sizes_of(moved, figure) if len(moved.gains) else pd.DataFrame()
    if data.empty:
        return False
    points = data[data["matrices_used"] > 0].groupby([*PANEL, "label"])["matrices_used"].nunique()
    return bool((points > 1).any())


_KINDS: dict[str, tuple[Callable[..., Plot], Callable[[Moved, MovedFigure], bool]]] = {
    "methods": (method_bars, lambda moved, figure: len(set(figure.methods) & set(moved.gains["method"])) > 1),
    "matrices": (each_matrix, lambda moved, _: known_methods().subject in set(moved.matrices["method"])),
    "training": (training_curves, lambda moved, _: not moved.curves.empty),
    "sizes": (over_sizes, _has_sizes),
}
"""By kind of figure, what draws it, and whether a study can fill it."""


def _look(method: str) -> Look:
    about = known_methods().methods[method]
    return Look(about.colour, about.marker)


def _optimum(ax: Axes, speedup: float) -> None:
    ax.axhline(speedup, color="#000000", linestyle="--", linewidth=0.9, zorder=3)


def _told(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _limits(ax: Axes, values: pd.Series[float], optimum: pd.Series[float]) -> None:
    """Show the values and the optimum: an interval over two seeds may be a hundred times as long."""
    drawn = pd.concat([values.dropna(), optimum])
    ax.set_ylim(min(1.0, float(drawn.min())) / _BEYOND, max(1.0, float(drawn.max())) * _BEYOND)


def _seeds(data: pd.DataFrame) -> str:
    counts = sorted({int(count) for count in data["seeds"] if count})
    several = " or ".join(str(count) for count in counts if count > 1)
    return _told(
        f"Intervals are Student's over {several} seeds, cut where they leave the panel." if several else "",
        "What has one seed has no interval." if 1 in counts else "",
    )


def _beside(moved: Moved) -> str:
    """Say which baselines are missing, and which times are simulated."""
    methods, sentences = known_methods(), []
    for title, part in panels_of(moved.compared[moved.compared["ahead"] == MISSING]):
        names = ", ".join(dict.fromkeys(map(methods.title, part["baseline"])))
        sentences.append(f"Without these baselines nothing is compared for {title}: {names}.")
    notes = dict.fromkeys(moved.gains.loc[moved.gains["simulated"].astype(bool), "note"])
    return _told(*sentences, *(f"Simulated times: {note}." for note in notes))


def ahead(moved: Moved, among: Collection[str]) -> str:
    """Say in one sentence whose first choice is fastest; a tie where the next is within the interval over seeds."""
    told = []
    for title, part in panels_of(moved.gains[moved.gains["headline"]]):
        known = part[part["method"].isin(among) & part["top1_speedup"].notna()]
        if known.empty:
            continue
        first, *others = known.sort_values(["top1_speedup", "method"], ascending=[False, True]).to_dict("records")
        said = f"{known_methods().title(first['method'])} with {first['top1_speedup']:.2f}×"
        if not others:
            told.append(f"{title}: {said} alone")
            continue
        second = others[0]
        factor = first["top1_speedup"] / second["top1_speedup"]
        tie = ", a tie" if round(factor, 2) <= 1 else ""
        if first["top1_speedup_low"] <= second["top1_speedup"]:
            tie = ", a tie within the interval over seeds"
        told.append(
            f"{title}: {said} before {known_methods().title(second['method'])} with {second['top1_speedup']:.2f}×, "
            f"a factor of {factor:.2f}{tie}"
        )
    return sentence(told)


def while_training(curves: pd.DataFrame) -> str:
    """Say from where to where the scores go in each phase, on samples that were held out where there are such."""
    told = []
    for title, part in panels_of(curves):
        for phase, own in part.groupby("phase", sort=False):
            values = own.pivot_table(index="epoch", columns="value_of", values="value")
            moves = []
            for score, name in SCORES.items():
                drawn = next((of for of in (HELD + score, score) if of in values), "")
                if drawn:
                    curve = values[drawn].dropna()
                    first, last = curve.iloc[0], curve.iloc[-1]
                    moves.append(f"{'held-out ' * (drawn != score)}{name} goes from {first:z.2f} to {last:z.2f}")
            told += [f"{title}, {phase}: {', '.join(moves)}"] if moves else []
    return sentence(told)


def by_sizes(data: pd.DataFrame, figure: MovedFigure) -> str:
    """Say from where to where each curve goes, and where the level lines of interest are.

    Parameters
    ----------
    data : DataFrame
        As `sizes_of` gives it.
    figure : MovedFigure
        Its methods are curves, and those that it holds are level lines.
    """
    told, where = [], figure.axis.split("_")[0]
    for title, part in panels_of(data[data["value"].notna()]):
        said = []
        for name in figure.methods:
            curve = part[(part["method"] == name) & (part["matrices_used"] > 0)].sort_values("matrices_used")
            if len(curve) > 1:
                low, high = (int(curve["matrices_used"].iloc[at]) for at in (0, -1))
                start, end = (f"{curve['value'].iloc[at]:.2f}×" for at in (0, -1))
                few = counted(low, f"{where} matrix", f"{where} matrices")
                said.append(f"{known_methods().title(name)} goes from {start} with {few} to {end} with {high:,}")
        levels = part[part["matrices_used"] == 0].set_index("method")["value"].sort_values(ascending=False)
        shown = [name for at, name in enumerate(map(str, levels.index)) if at == 0 or name in figure.held]
        lines = ", ".join(f"{with_choice(name)} at {levels[name]:.2f}×" for name in shown)
        said += [f"level lines: {lines}" + " (the highest first)" * (len(shown) > 1)] if lines else []
        told.append(f"{title}: {', '.join(said)}")
    return sentence(told)


def with_choice(method: str) -> str:
    """Give a method's name in a legend, with the choice that a baseline is shown by where that is not the first."""
    methods = known_methods()
    baseline = methods.baselines.get(method)
    choice = f", {SAID['top5']}" if baseline and baseline.choices[0] == "top5" else ""
    return methods.title(method) + choice
