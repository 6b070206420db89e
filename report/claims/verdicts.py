"""The rules by which our number judges a published one, and by which verdicts are counted.

The published numbers were measured on other machines: they are context, never a target. In this order:

1. *not run*: no record answers the claim. Ours stays empty, and the reason says what is missing.
2. *no verdict*: our number is shown without a judgement. The paper has no number, or ours covers fewer than half of the
   claim's matrices. Numbers that are no ratios have no verdict either where ours is a time on another device, or has a
   reservation.
3. *neutral*: the paper puts a ratio, or both ends of its range, at 0.9 to 1.1. It says that two are alike, which most
   pairs are: such a claim counts neither for a paper nor against it.
4. *reproduced*: ours is within 15 % of the published number, or our 95 % interval holds that number and is at most 15 %
   to either side. Both ends of a range must agree. Ours must be on the published side of 1. Sizes of matrices must be
   equal, densities equal to three digits. A reservation forbids this verdict: a stand-in for the matrix, a case of the
   claim without a result, or conditions that differ.
5. *direction holds*, for ratios only: our whole interval is on the published side of 1, and the logarithm of ours is at
   least half of the published one. Both ends of a range must hold.
6. *not reproduced: same direction*, for ratios only: the side is right, and the logarithm is less than half.
7. *not reproduced*: everything else.

An end of a range at 1 has no side. Ours must agree with it, or be on the side of the other end.

A bound (``above`` or ``below``) agrees where our whole interval is beyond it. "A is faster than B" is a bound of 1. It
states no number, so *direction holds* is its best verdict.

A verdict is about one device and its records, not about the paper. Claims that one measurement answers count once, with
the worst verdict among them; so do claims that name the same ``group``, as a table's cell and the text that repeats the
cell. Times on a GPU, seconds of searches, storage, numbers of a simulator, studies of predictors on a CPU, sizes of
matrices and the authors' settings are counted apart (`ClaimKind`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from math import isnan, log
from typing import Final

import pandas as pd

from spmark.report.analysis.statistics import Interval
from spmark.report.claims.answers import Answer
from spmark.report.claims.published import FACTS, RATIOS, Claim, Published, Statistic

WITHIN: Final = 0.15
"""Relative difference up to which a number is reproduced, and half-width up to which an interval may say so."""
NEUTRAL: Final = (0.9, 1.1)
"""Published ratios that say that two are alike."""
_LEAST_STRENGTH = 0.5
"""Share of the published log-ratio from which a direction holds."""
_DENSITY_DIGITS = 5e-3
_LEAST_COVERED = 0.5
_ROUNDING = 1e-9
"""What arithmetic may add to a number that lies on the border of a rule."""
_SEARCHES = frozenset(statistic for statistic in Statistic if "search_" in statistic)
_TIMES = frozenset({Statistic.MEDIAN_MS, Statistic.SEARCH_S, Statistic.SEARCH_RANGE_S})


class Verdict(StrEnum):
    """What records say about a claim."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction holds"
    SAME_DIRECTION = "not reproduced: same direction"
    NOT_REPRODUCED = "not reproduced"
    NEUTRAL = "neutral"
    NO_VERDICT = "no verdict"
    NOT_RUN = "not run"


_WORST_FIRST = (
    Verdict.NOT_REPRODUCED, Verdict.SAME_DIRECTION, Verdict.DIRECTION, Verdict.REPRODUCED, Verdict.NEUTRAL,
    Verdict.NO_VERDICT, Verdict.NOT_RUN,
)  # fmt: skip


class ClaimKind(StrEnum):
    """What answers a claim: kinds are counted apart."""

    GPU = "GPU"
    """Times of kernels, and what follows from them."""
    SEARCH = "search time"
    """Seconds of searches: the host's cores and compilers decide them as much as the GPU."""
    STORAGE = "storage"
    """Padding and memory of formats, which no GPU decides."""
    SIMULATOR = "simulator"
    """Numbers of an accelerator that is simulated."""
    STUDY = "CPU study"
    """Scores of predictors, which no GPU decides."""
    SIZES = "sizes"
    """Sizes and densities of matrices: they say that the inputs are the same, and nothing about speed."""
    SETTINGS = "settings"
    """What the authors chose, trained or counted without a GPU, and no record answers."""


def kind_of(claim: Claim) -> ClaimKind:
    """Give the kind of a claim."""
    if claim.measure.statistic in FACTS:
        return ClaimKind.SIZES
    if claim.measure.statistic is Statistic.PREDICTION:
        return ClaimKind.STUDY
    if "simulated" in claim.gpu:
        return ClaimKind.SIMULATOR
    if claim.measure.statistic in _SEARCHES:
        return ClaimKind.SEARCH
    if claim.measure.statistic in (Statistic.PADDED_SHARE, Statistic.MEMORY_RATIO):
        return ClaimKind.STORAGE
    return ClaimKind.SETTINGS if claim.measure.statistic is None and not claim.gpu else ClaimKind.GPU


def judge(claim: Claim, found: Answer, device: str) -> Verdict:
    """Give the verdict on one claim.

    Parameters
    ----------
    claim : Claim
        What was published.
    found : Answer
        Ours.
    device : str
        Where ours is from, as records name it.
    """
    ends, statistic = claim.ends, claim.measure.statistic
    if not found.found:
        return Verdict.NOT_RUN
    if ends is None or found.covered < _LEAST_COVERED:
        return Verdict.NO_VERDICT
    pairs = list(zip(ends, (found.least, found.greatest), strict=True))
    if statistic in FACTS:
        within = _DENSITY_DIGITS if statistic is Statistic.DENSITY else 0.0
        return _either(all(abs(ours.value - published) <= within * published for published, ours in pairs))
    if statistic not in RATIOS and (elsewhere(claim, device) or found.reservations):
        return Verdict.NO_VERDICT
    agrees = all(
        _beyond(claim.bound, published, ours) if claim.bound else _agrees(published, ours) for published, ours in pairs
    )
    return _judge_ratio(claim, pairs, agrees, bool(found.reservations)) if statistic in RATIOS else _either(agrees)


def elsewhere(claim: Claim, device: str) -> bool:
    """Tell whether a claim is a time on another device than ours."""
    return claim.measure.statistic in _TIMES and _plain(claim.gpu) not in _plain(device)


def groups(published: Published) -> dict[str, str]:
    """Give what each claim of a paper counts as, by its id: a named group, else the first claim of its measurement."""
    named: dict[object, str] = {}
    counted: dict[str, str] = {}
    for claim in published.claims:
        about, measure = claim.conditions, claim.measure.model_copy(update={"differs": ""})
        key = (measure, about.op, about.dtype, about.widths, about.matrices) if measure.statistic else claim.id
        counted[claim.id] = claim.group or named.get(key, claim.id)
        named.setdefault(key, counted[claim.id])
    return counted


def totals(cards: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts of one device by paper and kind.

    Parameters
    ----------
    cards : DataFrame
        With the columns ``paper``, ``kind``, ``group`` and ``verdict``, one row a claim.

    Returns
    -------
    DataFrame
        ``paper``, ``kind``, ``cells`` (claims as they are listed), ``counted`` (each group once) and a column for each
        `Verdict`, which add up to ``counted``. In the papers' order and that of `ClaimKind`.
    """
    order = {verdict.value: place for place, verdict in enumerate(_WORST_FIRST)}
    keys = ["paper", "kind"]
    worst = cards.assign(place=cards["verdict"].map(order)).sort_values("place", kind="stable")
    once = worst.drop_duplicates(["paper", "group"])
    papers, kinds = list(dict.fromkeys(cards["paper"])), [kind.value for kind in ClaimKind]
    present = set(zip(once["paper"], once["kind"], strict=True))
    index = pd.MultiIndex.from_tuples([(p, q) for p in papers for q in kinds if (p, q) in present], names=keys)
    counts = once.groupby([*keys, "verdict"]).size().unstack(fill_value=0)
    counts = counts.reindex(index=index, columns=[verdict.value for verdict in Verdict], fill_value=0)
    counts.insert(0, "counted", counts.sum(axis=1))
    counts.insert(0, "cells", cards.groupby(keys).size().reindex(index))
    return counts.reset_index().rename_axis(columns=None)


def _judge_ratio(claim: Claim, pairs: list[tuple[float, Interval]], agrees: bool, reserved: bool) -> Verdict:
    if all(_neutral(published) for published, _ in pairs):
        if not claim.bound:
            return Verdict.NEUTRAL
        return Verdict.DIRECTION if agrees else Verdict.NOT_REPRODUCED
    if agrees and not reserved and all(published == 1 or _sided(published, ours.value) for published, ours in pairs):
        return Verdict.REPRODUCED
    farthest = max((published for published, _ in pairs), key=lambda published: abs(log(published)))
    strength = min(_strength(published, ours, farthest) for published, ours in pairs)
    if strength >= _LEAST_STRENGTH - _ROUNDING:
        return Verdict.DIRECTION
    return Verdict.SAME_DIRECTION if strength > 0 else Verdict.NOT_REPRODUCED


def _strength(published: float, ours: Interval, farthest: float) -> float:
    """Give the share of the published log-ratio that ours reaches; 0 where our interval is not on that side of 1.

    An end at 1 takes the side of the end that is ``farthest`` from 1, where ours does not agree.
    """
    if published == 1:
        return float(_agrees(published, ours) or all(_sided(farthest, end) for end in _ends(ours)))
    return log(ours.value) / log(published) if all(_sided(published, end) for end in _ends(ours)) else 0.0


def _either(agrees: bool) -> Verdict:
    return Verdict.REPRODUCED if agrees else Verdict.NOT_REPRODUCED


def _agrees(published: float, ours: Interval) -> bool:
    near = abs(ours.value - published) <= WITHIN * abs(published) + _ROUNDING
    return near or (ours.low <= published <= ours.high and abs(ours.half_width) <= WITHIN + _ROUNDING)


def _beyond(bound: str, published: float, ours: Interval) -> bool:
    low, high = _ends(ours)
    return low > published if bound == "above" else high < published


def _neutral(published: float) -> bool:
    return NEUTRAL[0] - _ROUNDING <= published <= NEUTRAL[1] + _ROUNDING


def _sided(published: float, value: float) -> bool:
    """Tell whether a positive ratio is on the published side of 1."""
    return value > 0 and (value - 1) * (published - 1) > 0


def _ends(ours: Interval) -> tuple[float, float]:
    """Give the interval, or the number twice where it has none."""
    return (
        ours.value if isnan(ours.low) else ours.low,
        ours.value if isnan(ours.high) else ours.high,
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()) or "-"
