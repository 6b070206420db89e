"""Who is ahead in a figure and by how much, in a sentence that follows from the figure's cases.

Two labels are compared on common cases by the interval of their ratio. What differs between matrices, which is far more
than what differs between labels, then cancels. Where the interval holds 1 the sentence speaks of a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spmark.report.analysis.cases import panels_of
from spmark.report.analysis.means import over_matrices
from spmark.report.analysis.statistics import Interval, mean_of

CASE = ("matrix", "width", "seed")
_MOST_NAMED = 3
"""Labels without enough cases that a sentence names: it counts more of them."""
NO_LEAD = "no case is common to all labels with most cases, so that none leads"


@dataclass(frozen=True)
class Finding:
    """A sentence about a figure, and the labels that the figure has to show for the sentence to be followed."""

    text: str
    labels: tuple[str, ...] = ()
    """Those that lead or come next, in the order of the sentence."""


@dataclass(frozen=True)
class Lead:
    """The labels with the best means over the cases that all labels with most cases share."""

    means: dict[str, float]
    """Geometric mean of the first label and, where there is one, of the second."""
    factor: Interval
    """How much better the first is than the second, at least 1."""
    cases: int
    left_out: tuple[str, ...]
    """Labels with half of the cases or fewer, which are not compared."""

    @property
    def tied(self) -> bool:
        """Whether there are two labels and their factor, or the lower end of its interval, is 1 as it is written."""
        alike = round(self.factor.value, 2) <= 1 or round(self.factor.low, 2) <= 1
        return alike and len(self.means) > 1


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
    best = sorted(means, key=lambda label: (means[label] if less else -means[label], label))[:2]
    ratio = common[best[-1]] / common[best[0]] if less else common[best[0]] / common[best[-1]]
    factor = over_matrices(ratio.rename("ratio").reset_index(), "ratio")
    return Lead({label: means[label] for label in best}, factor, len(common), left_out)


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
    cases: pd.DataFrame,
    column: str,
    leads: str,
    say: Callable[[float], str],
    *,
    less: bool = False,
    case: Sequence[str] = CASE,
) -> Finding:
    """Say in one sentence who leads for each op and dtype.

    Parameters
    ----------
    cases, column, less, case
        As for `lead_of`, of several ops and dtypes.
    leads : str
        What the first one does: ``is fastest``.
    say : callable
        Writes a mean.
    """
    told: list[str] = []
    named: list[str] = []
    for (op, dtype), part in panels_of(cases):
        lead = lead_of(part, column, less=less, case=case)
        told.append(f"{op}, {dtype}: {_told(lead, leads, say) if lead else NO_LEAD}")
        named += lead.means if lead else []
    return Finding(sentence(told), tuple(dict.fromkeys(named)))


def _told(lead: Lead, leads: str, say: Callable[[float], str]) -> str:
    (first, mean), *others = lead.means.items()
    said = f"{first} {leads} with {say(mean)}"
    factor = f"a factor of {lead.factor.value:.2f}"
    if np.isfinite(lead.factor.low):
        factor += f" (95 % interval {lead.factor.low:.2f} to {lead.factor.high:.2f})"
    for second, its_mean in others:
        said += f", before {second} with {say(its_mean)}, {factor}"
        if lead.tied:
            said = f"{first} with {say(mean)} and {second} with {say(its_mean)} tie, {factor} apart"
    of_few = lead.left_out
    few = ", ".join(of_few) if len(of_few) <= _MOST_NAMED else f"{len(of_few)} further labels"
    few = f"; {few} solved too few cases to be compared" if of_few else ""
    return f"{said}, over {counted(lead.cases, 'case')}{few}"


def at_widths(cases: pd.DataFrame, column: str) -> Finding:
    """Say in one sentence who is fastest at each J; the cases are those of `lead_of`."""
    at: dict[tuple[str, ...], list[str]] = {}
    for width, part in cases.groupby("width"):
        if lead := lead_of(part, column):
            at.setdefault(tuple(sorted(lead.means)) if lead.tied else tuple(lead.means)[:1], []).append(str(width))
    told = [
        f"{' and '.join(who)} {'tie' if len(who) > 1 else 'is fastest'} at J = {', '.join(widths)}"
        for who, widths in at.items()
    ]
    return Finding(sentence(told or [NO_LEAD]), tuple(dict.fromkeys(label for who in at for label in who)))


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
