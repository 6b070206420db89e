"""Published claims beside ours: the paper's number, the answer of one device's records, and a verdict.

The published numbers were measured on other machines: they are context, never a target. The rules are:

1. *not run*: no record answers the claim. Ours stays empty, and the reason says what is missing.
2. *reproduced*: the published number lies within our 95 % interval, or ours is within 15 % of it; for a range, both
   ends do. Sizes of matrices must be equal, densities equal to three digits. A reservation forbids this verdict: a
   stand-in for the matrix, a case of the claim without a result, or conditions that differ.
3. *direction holds*, for ratios only: ours is on the same side of 1 as the published number, and so is our whole
   interval where there is one (for a range: both ends); or ours agrees by rule 2, but with a reservation.
4. *not reproduced*: otherwise.
5. *no verdict*: our number says nothing about the claim and is shown without a judgement. Such numbers are times in
   seconds on another device than the published one, numbers with a reservation that are not ratios, and results of
   fewer than half of the claim's matrices.

A verdict is about this device and these records, not about the paper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from math import isnan, nan
from typing import Any

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.report.claims.answers import Answer, Records, answer
from spmark.report.claims.published import FACTS, PAPERS, RATIOS, Claim, Published, Statistic, load_published
from spmark.report.derive.statistics import Interval
from spmark.report.derive.transfers import Moved
from spmark.report.load.records import current
from spmark.report.tables.table import Table

WITHIN = 0.15
"""Relative difference up to which a number counts as reproduced."""
_DENSITY_DIGITS = 5e-3
_SAME = 5e-4
_LEAST_COVERED = 0.5
_TIMES = frozenset({Statistic.MEDIAN_MS, Statistic.SEARCH_S, Statistic.SEARCH_RANGE_S})
COLUMNS = (
    "paper", "claim", "where", "what", "conditions", "gpu", "unit", "published", "published_low", "published_high",
    "ours", "ours_value", "ours_low", "ours_high", "cases", "device", "verdict", "why", "fact",
)  # fmt: skip
_SHOWN = (
    "paper", "claim", "what", "where", "gpu", "published", "published_low", "published_high", "ours", "ours_low",
    "ours_high", "device", "verdict", "why", "conditions",
)  # fmt: skip


class Verdict(StrEnum):
    """What records say about a claim; the module's docstring has the rules."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction holds"
    NOT_REPRODUCED = "not reproduced"
    NO_VERDICT = "no verdict"
    NOT_RUN = "not run"


def scorecard(frame: pd.DataFrame, papers: Sequence[str] = PAPERS, moved: Moved | None = None) -> pd.DataFrame:
    """Compare records with the papers' claims.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.load.records.load_records` gives it; may be of several devices, or empty.
    papers : sequence of str
        Out of `PAPERS`.
    moved : Moved, optional
        Studies of moved models, which answer claims beside every device's records.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row per claim and device, in the order of the files. Without records every claim stands there
        once, not run.

        - ``published`` and ``ours`` are text with unit and interval.
        - ``published_low`` and ``published_high`` are the published number or range.
        - ``ours_low`` and ``ours_high`` are the 95 % interval of ``ours_value``, or least and greatest where the claim
          is a range and ``ours_value`` is NaN.
        - ``fact`` says whether the claim is of a matrix alone.

    Raises
    ------
    RecordError
        A paper has no claims, or its file is broken.
    """
    kept = current(frame)
    devices = [(str(device), Records(part, moved)) for device, part in kept.groupby("device", sort=False)]
    devices = devices or [("", Records(kept, moved))]
    rows = [
        _row(published, claim, device, records)
        for device, records in devices
        for published in sorted(map(load_published, papers), key=lambda published: published.place)
        for claim in published.claims
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def scorecard_tables(frame: pd.DataFrame, papers: Sequence[str] = (), moved: Moved | None = None) -> list[Table]:
    """Give the tables for the report of one device: verdicts by paper, and every claim.

    Parameters
    ----------
    frame : DataFrame
        Records of one device; empty where only studies of moved models are reported.
    papers : sequence of str
        Out of `PAPERS`; by default the papers of which records answer more than the sizes of matrices.
    moved : Moved, optional
        As for `scorecard`.

    Returns
    -------
    list of Table
        Empty where there is no such paper, or the device gives no times.
    """
    if (frame.empty and moved is None) or (frame["device_kind"] == DeviceKind.HOST_SIMT.value).any():
        return []
    cards = scorecard(frame, papers or PAPERS, moved)
    run = cards["verdict"] != Verdict.NOT_RUN.value
    if not papers:
        answered = set(cards.loc[run & ~cards["fact"], "paper"])
        cards = cards[cards["paper"].isin(answered)]
    if cards.empty:
        return []
    ordered = pd.concat([cards[run.loc[cards.index]], cards[~run.loc[cards.index]]])
    return [
        Table("verdicts", "Published claims: verdicts", _SUMMARY_NOTE, _summary(cards)),
        Table("claims", "Published claims beside ours", _CLAIMS_NOTE, ordered[list(_SHOWN)]),
    ]


_SUMMARY_NOTE = (
    "Claims of each paper by verdict; a cell of a table is a claim. Sizes and densities of matrices are counted apart: "
    "they say that the inputs are the same, and nothing about speed."
)
_CLAIMS_NOTE = (
    "Published numbers are from other devices: context, not a target. Reproduced: the published number is within our "
    f"95 % interval, or ours within {WITHIN:.0%} of it; sizes must be equal. Direction holds: a ratio on the same side "
    "of 1, or one that agrees with a reservation, which is a stand-in matrix, a case without a result, or conditions "
    "that differ. No verdict: times of different devices, results of fewer than half of a claim's matrices, and "
    "numbers with a reservation that are not ratios. What was not run is empty, and the reason says what is missing."
)


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
    agrees = all(_agrees(published, ours) for published, ours in pairs)
    if statistic in RATIOS:
        same_side = all(_same_side(published, ours) for published, ours in pairs)
        if agrees and not found.reservations:
            return Verdict.REPRODUCED
        return Verdict.DIRECTION if agrees or same_side else Verdict.NOT_REPRODUCED
    return Verdict.NO_VERDICT if _elsewhere(claim, device) or found.reservations else _either(agrees)


def _elsewhere(claim: Claim, device: str) -> bool:
    return claim.measure.statistic in _TIMES and _plain(claim.gpu) not in _plain(device)


def _either(agrees: bool) -> Verdict:
    return Verdict.REPRODUCED if agrees else Verdict.NOT_REPRODUCED


def _agrees(published: float, ours: Interval) -> bool:
    return abs(ours.value - published) <= WITHIN * abs(published) or ours.low <= published <= ours.high


def _same_side(published: float, ours: Interval) -> bool:
    low = ours.value if isnan(ours.low) else ours.low
    high = ours.value if isnan(ours.high) else ours.high
    return (published > 1 and low > 1) or (published < 1 and high < 1)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()) or "-"


def _row(published: Published, claim: Claim, device: str, records: Records) -> dict[str, Any]:
    answered = answer(claim, records, published.matrices)
    low, high = claim.ends or (nan, nan)
    ranged = answered.found and isinstance(claim.value, tuple)
    ours = (answered.least.value, answered.greatest.value) if ranged else (answered.least.low, answered.least.high)
    return {
        "paper": published.paper,
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
        "ours_value": nan if ranged else answered.least.value,
        "ours_low": ours[0],
        "ours_high": ours[1],
        "cases": answered.cases,
        "device": device,
        "verdict": judge(claim, answered, device).value,
        "why": _why(claim, answered, device),
        "fact": claim.measure.statistic in FACTS,
    }


def _why(claim: Claim, answered: Answer, device: str) -> str:
    if not answered.found:
        return answered.missing
    reasons = [*answered.reservations, *answered.remarks]
    if claim.ends is None:
        reasons.append("nothing was published to compare with")
    elif _elsewhere(claim, device):
        reasons.append(f"a time on {claim.gpu} beside one on {device}")
    else:
        reasons.append(_distance(claim.ends, answered))
    return "; ".join(reasons)


def _distance(ends: tuple[float, float], answered: Answer) -> str:
    least, greatest = _compared(answered.least.value, ends[0]), _compared(answered.greatest.value, ends[1])
    return f"ours is {least}" if ends[0] == ends[1] else f"the least is {least}, the greatest {greatest}"


def _compared(ours: float, published: float) -> str:
    if published > 0 and abs(ours / published - 1) < _SAME:
        return "the same"
    if published <= 0 or not 0.5 < ours / published < 2:
        return f"{ours / published:.2g} times as much" if published > 0 else f"{ours:.4g}"
    off = ours / published - 1
    return f"{abs(off):.1%} {'higher' if off > 0 else 'lower'}"


def _published_text(claim: Claim) -> str:
    if claim.ends is None:
        return "out of memory" if claim.value == "oom" else "none"
    low, high = (_number(end, claim.unit) for end in claim.ends)
    return low if not isinstance(claim.value, tuple) else f"{low} to {high}"


def _ours_text(claim: Claim, answered: Answer) -> str:
    if not answered.found:
        return ""
    if isinstance(claim.value, tuple) and answered.least != answered.greatest:
        return f"{_number(answered.least.value, claim.unit)} to {_number(answered.greatest.value, claim.unit)}"
    text = _number(answered.least.value, claim.unit)
    if isnan(answered.least.low) or isnan(answered.least.high):
        return text
    return f"{text} [{_number(answered.least.low, claim.unit)}, {_number(answered.least.high, claim.unit)}]"


def _number(value: float, unit: str) -> str:
    if unit == "count":
        return f"{value:,.0f}"
    text = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return {"x": f"{text}×", "ms": f"{text} ms", "s": f"{text} s", "%": f"{text} %"}.get(unit, text)


def _summary(cards: pd.DataFrame) -> pd.DataFrame:
    papers = list(dict.fromkeys(cards["paper"]))
    results, facts = cards[~cards["fact"]], cards[cards["fact"]]
    counted = pd.crosstab(results["paper"], results["verdict"])
    counted = counted.reindex(index=papers, columns=[verdict.value for verdict in Verdict], fill_value=0)
    equal = facts[facts["verdict"] == Verdict.REPRODUCED.value].groupby("paper").size()
    known = facts[facts["verdict"] != Verdict.NOT_RUN.value].groupby("paper").size()
    sizes = [f"{equal.get(paper, 0)} of {known.get(paper, 0)} equal" for paper in papers]
    return counted.assign(claims=counted.sum(axis=1), sizes=sizes).reset_index().rename_axis(columns=None)
