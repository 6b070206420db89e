"""Two sets of records, case by case: what became slower or faster by more than runs of the same code differ by.

Each quantity of a case has a t test with moderated variance. The variance of one run's value is known from two sources,
which are weighed by their degrees of freedom (Smyth, Linear Models and Empirical Bayes Methods, Statistical
Applications in Genetics and Molecular Biology 2004):

- the trend of `spmark.report.analysis.run_spread`, to which the errors within the runs are added;
- repeated runs of the case: runs that the trend was learned from, and runs of the two sides.

Times, speed-ups over the interleaved baseline and phases of building are three families of tests, each corrected for
its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, inf, log, log1p, nan, sqrt
from typing import Any

import numpy as np
from scipy import stats

from spmark.impls.core.devicespec import DeviceKind
from spmark.records.schema import Status
from spmark.report.analysis.compare_inputs import PHASE, SPEEDUP, TIME, Observed, Side, differences, paired
from spmark.report.analysis.run_spread import SpreadModel, Trend, known_spread
from spmark.report.analysis.statistics import CONFIDENCE, FEWEST_SAMPLES, NOTHING, Interval

UNGATED = frozenset({SPEEDUP, PHASE + "upload"})
"""Quantities that are shown but fail no gate: a speed-up falls when the baseline becomes faster, and the time of an
upload depends on what the process allocated before (by a third between two sweeps of one code on an H200).
"""
LEAST_CHANGE = 0.02
"""Relative change below which nothing is flagged, however sure it is."""
ERROR_RATE = 0.05
"""Share of false alarms among flagged changes, and chance of an alarm where nothing changed."""
OWN_DF = 4
"""Degrees of freedom from which a case's own repeats replace a trend that was learned from no runs."""
GOAL, POWER, MOST_RUNS = 0.10, 0.9, 200
"""For `Difference.runs_needed`: the change, how often it should be found, and the most runs of a side."""
_LEAST_VARIANCE = 1e-12
_LARGEST_LOG = 700.0


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
class Difference:
    """A difference of two means of logarithms, with its error."""

    before: float
    """Geometric mean over the runs, in the unit of the quantity."""
    after: float
    error: float
    """Standard error of the logarithm of ``after / before``."""
    df: float
    """Degrees of freedom of the error."""
    runs: tuple[int, int]
    prior_df: float
    """Degrees of freedom that the trend counts as."""

    @property
    def log_ratio(self) -> float:
        """Logarithm of after over before."""
        return log(self.after / self.before)

    @property
    def p(self) -> float:
        """Two-sided p value where nothing else is tested."""
        return float(2 * stats.t.sf(abs(self.log_ratio) / self.error, self.df))

    @property
    def ratio(self) -> Interval:
        """After over before, with an interval that includes the spread between runs."""
        wide = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.df)) * self.error
        return Interval(exp(self.log_ratio), _exp(self.log_ratio - wide), _exp(self.log_ratio + wide))

    def threshold(self, tests: int) -> float:
        """Give the relative change that would be flagged if it were the only one among ``tests``."""
        return _exp(float(stats.t.isf(ERROR_RATE / 2 / tests, self.df)) * self.error) - 1

    def runs_needed(self, tests: int) -> float:
        """Give the runs of each side that find a change of `GOAL` with probability `POWER`, alone among ``tests``.

        Returns
        -------
        float
            A whole number, or infinite where `MOST_RUNS` do not suffice.
        """
        counts = np.arange(1, MOST_RUNS + 1)
        df = self.prior_df + 2.0 * (counts - 1)
        known = df > 0
        counts, df = counts[known], df[known]
        variance = self.error**2 / sum(1 / n for n in self.runs)
        reach = stats.t.isf(ERROR_RATE / 2 / tests, df) + stats.t.ppf(POWER, df)
        enough = np.sqrt(2 * variance / counts) * reach <= np.log1p(GOAL)
        return float(counts[enough.argmax()]) if enough.any() else inf


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
    pairs, only_before, only_after = paired(before, after, across)
    for old, new in pairs:
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
        only_before=tuple(only_before),
        only_after=tuple(only_after),
        differences=tuple(differences(before, after)),
        across=across,
    )


def difference(
    before: Observed, after: Observed, trends: Sequence[tuple[Trend, bool]], case_id: str = ""
) -> Difference:
    """Compare the runs of two sides in one quantity of one case.

    Parameters
    ----------
    before, after : Observed
        The runs of either side, at least one.
    trends : sequence of (Trend, bool)
        Of either side, and whether it was learned from runs. One that was not gives way to the case's own repeats as
        soon as these have `OWN_DF` degrees of freedom.
    case_id : str
        Case, which the trends may know from repeated runs.
    """
    sides = (before, after)
    within = [float((side.error**2).mean()) for side in sides]
    expected = [
        trend.variance(float(np.median(side.duration_us))) + error2
        for (trend, _), side, error2 in zip(trends, sides, within, strict=True)
    ]
    squares = [float(((side.value - side.value.mean()) ** 2).sum()) for side in sides]
    own_df = before.value.size + after.value.size - 2
    learned = all(known for _, known in trends)
    prior = min(trend.df for trend, _ in trends) if learned or own_df < OWN_DF else 0.0
    first, second = (trend for trend, _ in trends)
    known, known_df = first.known.get(case_id, (0.0, 0)) if first == second else (0.0, 0)
    # Both sides share the factor by which the case deviates from its trend, which itself deviates by none.
    deviation = prior + known_df * known + sum(s / e for s, e in zip(squares, expected, strict=True))
    prior += known_df
    factor = deviation / (prior + own_df)
    # Repeats that agree by chance, or to a clock's last digit, do not undo the error within a run.
    variances = [max(factor * e, w, _LEAST_VARIANCE) for e, w in zip(expected, within, strict=True)]
    return Difference(
        before=exp(float(before.value.mean())),
        after=exp(float(after.value.mean())),
        error=sqrt(sum(v / side.value.size for v, side in zip(variances, sides, strict=True))),
        df=prior + own_df,
        runs=(before.value.size, after.value.size),
        prior_df=prior,
    )


def adjusted(p: Sequence[float]) -> list[float]:
    """Correct p values of one family for their number.

    By Benjamini and Hochberg, Controlling the False Discovery Rate (Journal of the Royal Statistical Society B 1995).
    Where nothing changed, this correction raises an alarm as rarely as Holm's. Where a change slows many cases at once,
    as a change of shared code does, this one finds more.

    The correction holds for cases that err together, as the cases of one run do (Benjamini and Yekutieli, The Control
    of the False Discovery Rate in Multiple Testing under Dependency, Annals of Statistics 2001).
    """
    return [float(value) for value in stats.false_discovery_control(list(p), method="bh")] if len(p) else []


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
            **{name: getattr(outcome, name) for name in ("before", "after", "ratio", "runs", "p")},
            adjusted_p=level,
            threshold=max(outcome.threshold(len(tests)), least),
            runs_needed=outcome.runs_needed(len(tests)),
        )


def _exp(value: float) -> float:
    return exp(min(value, _LARGEST_LOG))
