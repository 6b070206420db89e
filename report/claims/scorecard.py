"""Published claims beside ours: the paper's number, the answer of one device's records, and a verdict by these rules.

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
from collections.abc import Sequence
from enum import StrEnum
from math import isnan, log, nan
from typing import Any, Final

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.report.analysis.statistics import Interval
from spmark.report.analysis.transfers import Moved
from spmark.report.claims.answers import Answer, Records, answer
from spmark.report.claims.published import FACTS, PAPERS, RATIOS, Claim, Published, Statistic, load_published
from spmark.report.records import current
from spmark.report.tables.table import Table

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


_SAME = 5e-4
_ANSWERED_ANYWAY = (ClaimKind.SIZES.value, ClaimKind.STUDY.value)
"""Kinds of claims that any record of a matrix, or a shipped study, answers."""
COLUMNS = (
    "paper", "kind", "group", "claim", "where", "what", "conditions", "gpu", "unit", "published", "published_low",
    "published_high", "ours", "ours_value", "ours_low", "ours_high", "cases", "device", "verdict", "why",
)  # fmt: skip
_SHOWN = (
    "paper", "verdict", "ours", "published", "what", "why", "where", "gpu", "conditions", "kind", "claim", "group",
    "device", "published_low", "published_high", "ours_low", "ours_high",
)  # fmt: skip
"""Columns of the page: what a reader looks for stands where no one has to scroll."""


def scorecard(frame: pd.DataFrame, papers: Sequence[str] = PAPERS, moved: Moved | None = None) -> pd.DataFrame:
    """Compare records with the papers' claims.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_records` gives it, best with rows for each sweep; may be of several
        devices, or empty.
    papers : sequence of str
        Out of `PAPERS`.
    moved : Moved, optional
        Studies of moved models, which answer claims beside every device's records.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row per claim and device, in the order of the files. Without records every claim stands there
        once, not run.

        - ``kind`` is a `ClaimKind`; claims of one ``group`` count once.
        - ``published`` and ``ours`` are text with unit and interval.
        - ``published_low`` and ``published_high`` are the published number or range.
        - ``ours_low`` and ``ours_high`` are the 95 % interval of ``ours_value``, or least and greatest where the claim
          is a range and ``ours_value`` is NaN.

    Raises
    ------
    RecordError
        A paper has no claims, or its file is broken.
    """
    kept = current(frame, by_sweep=True)
    known = sorted(map(load_published, papers), key=lambda published: published.place)
    devices = [(str(device), Records(part, moved, known)) for device, part in kept.groupby("device", sort=False)]
    rows = [
        _row(published, claim, group, device, records)
        for device, records in devices or [("", Records(kept, moved))]
        for published in known
        for claim, group in zip(published.claims, groups(published).values(), strict=True)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def answers_any(frame: pd.DataFrame, papers: Sequence[str] = (), moved: Moved | None = None) -> bool:
    """Say whether records answer a claim: one of ``papers``, or one that not every record of its matrix answers.

    Parameters are those of `scorecard_tables`, which gives tables where this is true.
    """
    if DeviceKind.HOST_SIMT.value in set(frame["device_kind"]):
        return False
    known = list(map(load_published, papers or PAPERS))
    records = Records(current(frame, by_sweep=True), moved, known)
    return any(
        answer(claim, records, published.matrices, published.sizes).found
        for published in known
        for claim in published.claims
        if papers or kind_of(claim).value not in _ANSWERED_ANYWAY
    )


def scorecard_tables(frame: pd.DataFrame, papers: Sequence[str] = (), moved: Moved | None = None) -> list[Table]:
    """Give the tables for the report of one device: verdicts by paper, and every claim.

    Parameters
    ----------
    frame : DataFrame
        Records of one device; empty where only studies of moved models are reported.
    papers : sequence of str
        Out of `PAPERS`; by default the papers of which these records answer more than the sizes of matrices.
    moved : Moved, optional
        As for `scorecard`.

    Returns
    -------
    list of Table
        Empty where there is no such paper, or the device gives no times.
    """
    if (frame.empty and moved is None) or DeviceKind.HOST_SIMT.value in set(frame["device_kind"]):
        return []
    cards = scorecard(frame, papers or PAPERS, moved)
    run = cards["verdict"] != Verdict.NOT_RUN.value
    if not papers:
        answered = set(cards.loc[run & ~cards["kind"].isin(_ANSWERED_ANYWAY), "paper"])
        cards = cards[cards["paper"].isin(answered)]
    if cards.empty:
        return []
    kinds = {kind.value: place for place, kind in enumerate(ClaimKind)}
    ordered = cards.assign(run=~run, place=cards["kind"].map(kinds)).sort_values(["run", "place"], kind="stable")
    return [
        Table("verdicts", "Published claims: verdicts by paper", _TOTALS_NOTE, totals(cards)),
        Table("claims", "Published claims beside ours", _CLAIMS_NOTE, ordered[list(_SHOWN)]),
    ]


_TOTALS_NOTE = (
    "Verdicts of each paper. Times on a GPU, seconds of searches, storage (padding and memory), numbers of a "
    "simulator, scores of predictors on a CPU, sizes of matrices and the authors' settings are counted apart. A cell "
    "is a number of a paper. Numbers that one measurement of ours answers count once, with the worst of their verdicts."
)
_CLAIMS_NOTE = (
    "Published numbers are from other devices: context, not a target. Reproduced: ours is within "
    f"{100 * WITHIN:.0f} % of the published number, or our 95 % interval holds it and is at most that wide to either "
    "side. Direction holds: the ratio is on the same side of 1, with at least half of the published logarithm; with "
    f"less it is not reproduced. Neutral: the paper puts the ratio at {NEUTRAL[0]} to {NEUTRAL[1]}. A ratio with a "
    "reservation (a stand-in matrix, a case without a result, other conditions) is never reproduced. No verdict: "
    "times of different devices, results of fewer than half of a claim's matrices, and other numbers with a "
    "reservation. What was not run is empty, and the reason says what is missing."
)


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
    if all(NEUTRAL[0] - _ROUNDING <= published <= NEUTRAL[1] + _ROUNDING for published, _ in pairs):
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


def _row(published: Published, claim: Claim, group: str, device: str, records: Records) -> dict[str, Any]:
    answered = answer(claim, records, published.matrices, published.sizes)
    low, high = claim.ends or (nan, nan)
    least, ranged = answered.least, answered.found and isinstance(claim.value, tuple)
    ours = (least.value, answered.greatest.value) if ranged else (least.low, least.high)
    return {
        "paper": published.paper,
        "kind": kind_of(claim).value,
        "group": group,
        "claim": claim.id,
        "where": claim.where,
        "what": claim.what,
        "conditions": str(claim.conditions),
        "gpu": claim.gpu,
        "unit": claim.unit,
        "published": _published_text(claim),
        "published_low": low,
        "published_high": high,
        "ours": _ours_text(claim, answered),
        "ours_value": nan if ranged else least.value,
        "ours_low": ours[0],
        "ours_high": ours[1],
        "cases": answered.cases,
        "device": device,
        "verdict": judge(claim, answered, device).value,
        "why": _why(claim, answered, device),
    }


def _why(claim: Claim, answered: Answer, device: str) -> str:
    if not answered.found:
        return answered.missing
    reasons = [*answered.reservations, *answered.remarks]
    if claim.ends is None:
        reasons.append("nothing was published to compare with")
    elif elsewhere(claim, device):
        reasons.append(f"a time on {claim.gpu} beside one on {device}")
    else:
        ours = (answered.least.value, answered.greatest.value)
        least, greatest = map(_compared, ours, claim.ends)
        single = claim.ends[0] == claim.ends[1]
        reasons.append(f"ours is {least}" if single else f"the least is {least}, the greatest {greatest}")
    return "; ".join(reasons)


def _compared(ours: float, published: float) -> str:
    if published <= 0:
        return f"{ours:.4g}"
    off = ours / published - 1
    if abs(off) < _SAME:
        return "the same"
    if not -0.5 < off < 1:
        return f"{ours / published:.2g} times as much"
    return f"{abs(off):.1%} {'higher' if off > 0 else 'lower'}"


def _published_text(claim: Claim) -> str:
    if claim.ends is None:
        return "out of memory" if claim.value == "oom" else "none"
    low, high = (_number(end, claim.unit) for end in claim.ends)
    if isinstance(claim.value, tuple):
        return f"{low} to {high}"
    return f"{claim.bound} {low}" if claim.bound else low


def _ours_text(claim: Claim, answered: Answer) -> str:
    if not answered.found:
        return ""
    least, greatest = answered.least, answered.greatest
    text = _number(least.value, claim.unit)
    if isinstance(claim.value, tuple) and least != greatest:
        return f"{text} to {_number(greatest.value, claim.unit)}"
    if isnan(least.low) or isnan(least.high):
        return text
    return f"{text} [{_number(least.low, claim.unit)}, {_number(least.high, claim.unit)}]"


def _number(value: float, unit: str) -> str:
    if unit == "count" or abs(value) >= 1e4:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.4g}"
    return text + {"x": "×", "ms": " ms", "s": " s", "%": " %"}.get(unit, "")
