"""What figures of studies of moved cost models say: sentences that follow from what each figure draws."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from spmark.report.analysis.methods import SAID, MovedFigure, known_methods
from spmark.report.analysis.transfers import Moved, panels_of
from spmark.report.figures.findings import counted, sentence

SCORES = {"opa": "OPA", "tau": "tau"}
"""Scores of an order of configs, with the names that figures give them."""
HELD = "held_"
"""What the names of values on samples that were held out of training begin with."""


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
        As `spmark.report.figures.transfers.sizes_of` gives it.
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
