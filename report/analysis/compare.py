"""Two sets of records, case by case: what became slower or faster by more than runs of the same code differ by.

Times, speed-ups over the interleaved baseline and phases of building are three families of tests, each corrected for
its size (`spmark.report.analysis.difference`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import log1p, nan
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.record import Status
from spmark.report.analysis.compare_inputs import Side, alone, differences, paired
from spmark.report.analysis.difference import ERROR_RATE, Difference, adjusted, difference
from spmark.report.analysis.run_statistics import PHASE, SPEEDUP, TIME
from spmark.report.analysis.spreadmodel import SpreadModel, known_spread
from spmark.report.analysis.statistics import FEWEST_SAMPLES, NOTHING, Interval

UNGATED = frozenset({SPEEDUP, PHASE + "upload"})
"""Quantities that are shown but fail no gate: a speed-up falls when the baseline becomes faster, and the time of an
upload depends on what the process allocated before (by a third between two sweeps of one code on an H200).
"""
LEAST_CHANGE = 0.02
"""Relative change below which nothing is flagged, however sure it is."""


class CaseVerdict(StrEnum):
    """The verdict on a case."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    SAME = "same"
    """No change was found; the threshold says how large one would have been."""
    BROKEN = "broken"
    """The case had a result and has none now."""
    FIXED = "fixed"
    UNTESTED = "untested"
    """The note says why."""


@dataclass(frozen=True)
class Change:
    """The change of one quantity of one case; ratios are after over before."""

    device: str
    """Empty where two devices are compared."""
    case_id: str
    quantity: str
    verdict: CaseVerdict
    before: float = nan
    """Median in us, speed-up, or seconds of a phase; the geometric mean where there are several runs."""
    after: float = nan
    ratio: Interval = NOTHING
    """95 % interval, which includes the spread between runs."""
    runs: tuple[int, int] = (0, 0)
    p: float = nan
    """Two-sided, of this case alone."""
    adjusted_p: float = nan
    threshold: float = nan
    """Relative change that would have been flagged had no other case changed."""
    runs_needed: float = nan
    """Runs of each side that find a tenth nine times of ten, had no other case changed."""
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """The outcome of `compare`."""

    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    differences: tuple[str, ...]
    """What else differs between the machines and the software."""
    across: bool

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The changes that a gate fails on: all but `UNGATED`; across devices speed-ups and lost results."""
        gates = [change for change in self.changes if self.across or change.quantity not in UNGATED]
        return tuple(change for change in gates if change.verdict in (CaseVerdict.REGRESSED, CaseVerdict.BROKEN))


def compare(
    before: Side,
    after: Side,
    models: tuple[SpreadModel, SpreadModel] | None = None,
    *,
    across: bool = False,
    least: float = LEAST_CHANGE,
) -> Comparison:
    """Compare two sides case by case.

    Parameters
    ----------
    before, after : Side
        See `spmark.report.analysis.compare_inputs.read_side`.
    models : (SpreadModel, SpreadModel), optional
        What runs of the same code differ by, on the device of either side; by default what ships for that device.
    across : bool
        Compare devices, drivers or protocols: speed-ups over the baseline only.
    least : float
        Relative change below which nothing is flagged.

    Raises
    ------
    RecordError
        The sides may not be compared, or share no case.
    """
    models = models or (known_spread(before.device), known_spread(after.device))
    changes: list[Change] = []
    tests: list[tuple[Change, Difference]] = []
    for old, new in paired(before, after, across):
        ended = _without_result(old, new, across)
        if ended is not None:
            changes.append(ended)
        elif old.status == new.status == Status.OK:
            for change, outcome in _tests(old, new, models, across):
                if outcome is None:
                    changes.append(change)
                else:
                    tests.append((change, outcome))
    for family in (TIME, SPEEDUP, PHASE):
        changes += _decided([test for test in tests if test[0].quantity.startswith(family)], least)
    return Comparison(
        changes=tuple(changes),
        only_before=tuple(alone(before, after, across)),
        only_after=tuple(alone(after, before, across)),
        differences=tuple(differences(before, after)),
        across=across,
    )


def _without_result(old: Any, new: Any, across: bool) -> Change | None:
    """Give the change of a case whose matrix or ending differs; None where both sides ended alike."""
    verdict, note = CaseVerdict.UNTESTED, ""
    if old.matrix_hash != new.matrix_hash and old.matrix_hash and new.matrix_hash:
        note = f"another matrix: pattern {old.matrix_hash[:8]} became {new.matrix_hash[:8]}"
    elif (old.status == Status.OK) == (new.status == Status.OK):
        return None
    elif new.status == Status.OK:
        verdict, note = CaseVerdict.FIXED, f"was {old.status}: {_first_line(old.reason)}"
    else:
        # Another device may refuse what this one takes.
        verdict = CaseVerdict.UNTESTED if across and new.status == Status.UNSUPPORTED else CaseVerdict.BROKEN
        note = f"now {new.status}: {_first_line(new.reason)}"
    return Change(old.device, old.case_id, TIME, verdict, note=note)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _tests(
    old: Any, new: Any, models: Sequence[SpreadModel], across: bool
) -> Iterator[tuple[Change, Difference | None]]:
    """Give the change of each quantity and its difference; None where a note says why the change cannot be tested."""
    both = set(old.seen) & set(new.seen)
    for quantity in sorted({SPEEDUP} & both if across else both):
        sides, outcome = (old.seen[quantity], new.seen[quantity]), None
        if quantity == SPEEDUP and old.baseline_implementation != new.baseline_implementation:
            note = f"another baseline: {old.baseline_implementation} became {new.baseline_implementation}"
        elif any(np.isnan(side.error).any() for side in sides):
            note = f"expected {FEWEST_SAMPLES} samples of each run or more, found fewer"
        else:
            kinds = (DeviceKind(old.device_kind), DeviceKind(new.device_kind))
            trends = [model.trend(quantity, kind) for model, kind in zip(models, kinds, strict=True)]
            outcome, note = difference(*sides, trends, old.case_id), _note(quantity, old.config, new.config)
        yield Change(old.device, old.case_id, quantity, CaseVerdict.UNTESTED, note=note), outcome
    if across and SPEEDUP not in both and (old.baseline_implementation or new.baseline_implementation):
        note = "expected a baseline on both sides, found it on one"
        yield Change(old.device, old.case_id, SPEEDUP, CaseVerdict.UNTESTED, note=note), None


def _note(quantity: str, old: Mapping[str, object], new: Mapping[str, object]) -> str:
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if quantity != TIME or not keys:
        return ""
    return "chose " + ", ".join(f"{key}={new.get(key)} instead of {old.get(key)}" for key in keys)


def _decided(tests: Sequence[tuple[Change, Difference]], least: float) -> Iterator[Change]:
    """Give the verdicts of one family of tests."""
    for (change, outcome), level in zip(tests, adjusted([outcome.p for _, outcome in tests]), strict=True):
        worse = outcome.log_ratio < 0 if change.quantity == SPEEDUP else outcome.log_ratio > 0
        flagged = level <= ERROR_RATE and abs(outcome.log_ratio) > log1p(least)
        yield replace(
            change,
            verdict=(CaseVerdict.REGRESSED if worse else CaseVerdict.IMPROVED) if flagged else CaseVerdict.SAME,
            before=outcome.before,
            after=outcome.after,
            ratio=outcome.ratio,
            runs=outcome.runs,
            p=outcome.p,
            adjusted_p=level,
            threshold=max(outcome.threshold(len(tests)), least),
            runs_needed=outcome.runs_needed(len(tests)),
        )
