"""Who is ahead in a figure and by how much, in a sentence that follows from the figure's cases.

Two labels are compared on common cases by the interval of their ratio. What differs between matrices, which is far more
than what differs between labels, then cancels. Where the interval holds 1 the sentence speaks of a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spmark.report.analysis.groups import panels_of
from spmark.report.analysis.means import over_matrices
from spmark.report.analysis.statistics import Interval, mean_of

CASE = ("matrix", "width", "seed")
_RATIO = "ratio"
NO_LEAD = "no case is common to all labels with most cases, so that none leads"
_MOST_NAMED = 3
"""Labels that a sentence names as not compared; of more it says how many."""
Say = Callable[[float], str]


@dataclass(frozen=True)
class Finding:
    """A sentence about a figure, and the labels that the figure has to show for the sentence to be followed."""

    text: str
    labels: tuple[str, ...] = ()
    """Those that lead or come next, in the order of the sentence."""


@dataclass(frozen=True)
class Lead:
    """The two labels with the best means over the cases that all labels with most cases share."""

    first: str
    first_mean: float
    second: str
    """Empty where there is one label alone."""
    second_mean: float
    factor: Interval
    """How much better the first is than the second, at least 1."""
    cases: int
    left_out: tuple[str, ...] = ()
    """Labels with half of the cases or fewer, which are not compared."""

    @property
    def tied(self) -> bool:
        """Whether the factor, or the lower end of its interval, is 1 as it is written."""
        return round(self.factor.value, 2) <= 1 or round(self.factor.low, 2) <= 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that `told` names."""
        return (self.first, self.second) if self.second else (self.first,)

    def told(self, leads: str, say: Say) -> str:
        """Say who leads, with a verb (``is fastest``) and a way to write a mean."""
        first, second = f"{self.first} {leads} with {say(self.first_mean)}", say(self.second_mean)
        if not self.second:
            return first
        factor = f"a factor of {_factor(self.factor.value)}"
        if np.isfinite(self.factor.low):
            factor += f" (95 % interval {_factor(self.factor.low)} to {_factor(self.factor.high)})"
        if self.tied:
            return f"{self.first} with {say(self.first_mean)} and {self.second} with {second} tie, {factor} apart"
        return f"{first}, before {self.second} with {second}, {factor}"


def lead_of(cases: pd.DataFrame, column: str, *, less: bool = False, case: Sequence[str] = CASE) -> Lead | None:
    """Compare labels by the geometric means of a column.

    Parameters
    ----------
    cases : DataFrame
        Of one op and dtype: ``label``, ``matrix``, the ``column``, positive or NaN, and the columns of ``case``.
    column : str
        What is compared.
    less : bool
        The least mean leads.
    case : sequence of str
        Columns that tell the cases apart.

    Returns
    -------
    Lead or None
        Out of the labels that have more than half of the cases; None where these share no case.
    """
    common, left_out = common_cases(cases, column, case)
    if common.empty:
        return None
    means = {str(label): mean_of(common[label]) for label in common}
    first, *others = sorted(means, key=lambda label: (means[label] if less else -means[label], label))
    if not others:
        return Lead(first, means[first], "", means[first], Interval(1, 1, 1), len(common), left_out)
    second = others[0]
    ratio = common[second] / common[first] if less else common[first] / common[second]
    factor = over_matrices(ratio.rename(_RATIO).reset_index(), _RATIO)
    return Lead(first, means[first], second, means[second], factor, len(common), left_out)


def common_cases(cases: pd.DataFrame, column: str, case: Sequence[str] = CASE) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Give a column by case and label, over the cases that all labels with more than half of the cases share.

    Returns
    -------
    common : DataFrame
        A row for each case, a column for each label; empty where the labels share no case.
    left_out : tuple of str
        The labels with half of the cases or fewer, by name.
    """
    table = cases.pivot_table(index=list(case), columns="label", values=column, aggfunc="last")
    most = 2 * table.notna().sum() > len(table)
    return table.loc[:, most].dropna(), tuple(sorted(map(str, most.index[~most])))


def leading(
    cases: pd.DataFrame, column: str, leads: str, say: Say, *, less: bool = False, case: Sequence[str] = CASE
) -> Finding:
    """Say in one sentence who leads for each op and dtype; the parameters are those of `lead_of` and `Lead.told`."""
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(cases):
        lead = lead_of(part, column, less=less, case=case)
        who = NO_LEAD
        if lead:
            who = f"{lead.told(leads, say)}, over {counted(lead.cases, 'case')}" + too_few(lead.left_out)
            named += lead.labels
        told.append(f"{op}, {dtype}: {who}")
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


def too_few(labels: Sequence[str], where: str = "") -> str:
    """Name the labels that are not compared, as a part of a sentence; empty without any."""
    if not labels:
        return ""
    more = len(labels) - _MOST_NAMED
    names = [*labels[:_MOST_NAMED], f"{more} more"] if more > 1 else list(labels)
    who = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"; {who} {'shares' if len(labels) == 1 else 'share'} too few cases to be compared{where}"


def most_matrices(cases: pd.DataFrame, column: str) -> Finding:
    """Say in one sentence on how many matrices each label has the greatest mean, and by how much."""
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(cases):
        means = part.groupby(["matrix", "label"])[column].agg(mean_of).unstack("label")
        first, ordered = means.idxmax(axis=1), np.sort(means.to_numpy(), axis=1)  # NaN last
        wins = first.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        count = means.notna().sum(axis=1).to_numpy()
        mine = ((first == wins.index[0]) & (count > 1)).to_numpy()
        ahead = [row[n - 1] / row[n - 2] for row, n in zip(ordered[mine], count[mine], strict=True)]
        by = _by_in_mean(mean_of(ahead)) if ahead else ""
        ties = [" (a tie)" * bool(matrices == wins.iloc[0]) for matrices in wins]
        others = [f"{wins.index[at]} on {wins.iloc[at]}{ties[at]}" for at in range(1, min(4, len(wins)))]
        rest = f"; {', '.join(others)}" if others else ""
        head = f"{wins.index[0]} is fastest on {wins.iloc[0]} of {counted(len(means), 'matrix', 'matrices')}{by}"
        told.append(f"{op}, {dtype}: {head}{rest}")
        named += map(str, wins.index[:4])
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


def at_widths(cases: pd.DataFrame, column: str) -> Finding:
    """Say in one sentence who leads at each J, and by how much; the cases are of one op and dtype."""
    at: dict[tuple[str, str], list[tuple[int, float]]] = {}
    named: list[str] = []
    few: dict[str, list[int]] = {}
    for width, part in cases.groupby("width"):
        lead = lead_of(part, column)
        if lead is None:
            continue
        words = (f"{lead.first} is fastest", "from the next") if lead.second else (f"{lead.first} stands alone", "")
        if lead.tied and lead.second:
            words = f"{' and '.join(sorted(lead.labels))} tie", "apart"
        at.setdefault(words, []).append((int(str(width)), lead.factor.value))
        named += lead.labels if lead.tied else [lead.first]
        for label in lead.left_out:
            few.setdefault(label, []).append(int(str(width)))
    told = [] if at else [NO_LEAD]
    for (who, beside), factors in at.items():
        low, high = (_factor(end([factor for _, factor in factors])) for end in (min, max))
        far = f", a factor of {low if low == high else f'{low} to {high}'} {beside}" if beside else ""
        told.append(f"{who} {_at(width for width, _ in factors)}{far}")
    by_widths: dict[tuple[int, ...], list[str]] = {}
    for label, widths in sorted(few.items()):
        by_widths.setdefault(tuple(widths), []).append(label)
    lacking = "".join(too_few(labels, f" {_at(widths)}") for widths, labels in by_widths.items())
    return Finding(sentence(["; ".join(told) + lacking]), tuple(dict.fromkeys(named)))


def _at(widths: Iterable[int]) -> str:
    return f"at J = {', '.join(map(str, widths))}"


def _by_in_mean(factor: float) -> str:
    by = f"a factor of {_factor(factor)}" if round(factor, 2) > 1 else "next to nothing"
    return f", by {by} in the mean"


def _factor(factor: float) -> str:
    return f"{factor:.2f}" if factor < 10 else f"{factor:.3g}"


def said_seconds(seconds: float) -> str:
    """Write a time with its unit."""
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if seconds >= 0.99 * s), ("µs", 1e-6))
    amount = seconds / scale
    return f"{amount:,.0f} {unit}" if amount >= 9.95 else f"{amount:.2g} {unit}"


def sentence(parts: Sequence[str]) -> str:
    """Join parts to a sentence with its full stop; empty without parts."""
    return f"{'; '.join(parts)}." if parts else ""


def counted(count: int, one: str, several: str = "") -> str:
    """Write a number with its noun."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
