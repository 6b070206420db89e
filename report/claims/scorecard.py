"""Published claims beside ours: the paper's number, the answer of one device's records, and a verdict.

`spmark.report.claims.verdicts` states the rules of the verdicts and of the totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan
from typing import Any

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.report.analysis.transfers import Moved
from spmark.report.claims.answers import Answer, Records, answer
from spmark.report.claims.published import PAPERS, Claim, Published, load_published
from spmark.report.claims.verdicts import NEUTRAL, WITHIN, ClaimKind, Verdict, elsewhere, groups, judge, kind_of, totals
from spmark.report.records import current
from spmark.report.tables.table import Table

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
    devices = [(str(device), Records(part, moved)) for device, part in kept.groupby("device", sort=False)]
    known = sorted(map(load_published, papers), key=lambda published: published.place)
    rows = [
        _row(published, claim, group, device, records)
        for device, records in devices or [("", Records(kept, moved))]
        for published in known
        for claim, group in zip(published.claims, groups(published).values(), strict=True)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


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
