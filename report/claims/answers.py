"""What records of one device say to a published claim: the statistic that its `Measure` names, with an interval.

Only cases of the claim's op, dtype, widths and matrices count, and what is missing among them is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import isfinite, nan

import numpy as np
import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.record import MatrixKind, Status
from spmark.report.claims.published import FACTS, Claim, Measure, Statistic
from spmark.report.claims.study import published_study
from spmark.report.claims.tiles import published_agreement
from spmark.report.derive.cases import derive
from spmark.report.derive.statistics import NOTHING, Interval, geometric_mean

_SPEEDUPS = (Statistic.GEOMEAN_SPEEDUP, Statistic.SPEEDUP_RANGE, Statistic.MIN_SPEEDUP, Statistic.MAX_SPEEDUP)
_TIMED = (*_SPEEDUPS, Statistic.MEDIAN_MS, Statistic.MEAN_LOSS, Statistic.TIME_SPREAD)
_VALUE, _LOW, _HIGH = "value", "value_low", "value_high"
_KEY = ["op", "dtype", "matrix", "width", "seed"]
_MOST_NAMED = 4


@dataclass(frozen=True)
class Answer:
    """Ours beside a published number."""

    least: Interval = NOTHING
    greatest: Interval = NOTHING
    """The same as ``least`` where the claim is one number."""
    cases: int = 0
    """Cases that it rests on."""
    covered: float = 1.0
    """Share of the claim's matrices that it rests on."""
    reservations: tuple[str, ...] = ()
    """What keeps it from being the published experiment: stand-ins, cases without a result, other conditions."""
    remarks: tuple[str, ...] = ()
    """What a reader should know, without doubt on the answer."""
    missing: str = ""
    """Why there is no answer."""

    @property
    def found(self) -> bool:
        """Whether there is a number."""
        return isfinite(self.least.value)


@dataclass
class Records:
    """Records of one device, and what was derived of them so far."""

    frame: pd.DataFrame
    """As `spmark.report.load.records.current` gives it, of one device."""
    labels: set[str] = field(init=False)
    baselines: set[str] = field(init=False)
    """Implementations that any row was measured in turn with."""
    matrices: pd.DataFrame = field(init=False)
    """One row for each matrix that was loaded and is no stand-in."""
    _derived: dict[tuple[str, str], pd.DataFrame] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.frame["matrix"].map(lambda name: str(name).split(" #", 1)[0])
        self.frame = self.frame.assign(plain=names).reset_index(drop=True)
        self.labels = set(self.frame["label"])
        self.baselines = set(self.frame["baseline_implementation"])
        known = self.frame[(self.frame["matrix_hash"] != "") & (self.frame["matrix_kind"] != MatrixKind.TWIN.value)]
        self.matrices = known.drop_duplicates("matrix_hash")[["plain", "num_rows", "num_cols", "nnz"]]

    def of(self, measure: Measure) -> pd.DataFrame:
        """Give the rows of ``measure.of`` with `derive`'s columns over ``measure.over``."""
        key = (measure.of, measure.over)
        if key not in self._derived:
            part = self.frame[self.frame["label"].isin([name for name in key if name])]
            derived = derive(part.reset_index(drop=True), measure.over or None)
            self._derived[key] = derived[derived["label"] == measure.of]
        return self._derived[key]


def answer(claim: Claim, records: Records, matrices: dict[str, tuple[str, ...]]) -> Answer:
    """Compute what records say to a claim.

    Parameters
    ----------
    claim : Claim
        What was published.
    records : Records
        Of one device.
    matrices : dict
        Our matrix ids by the paper's names, as `Published` has them.
    """
    measure = claim.measure
    if measure.statistic in FACTS:
        return _fact(claim, records, matrices)
    missing = _not_run(measure, records)
    if missing or measure.statistic is None:
        return Answer(missing=missing)
    if measure.statistic is Statistic.PREDICTION:
        return _prediction(claim)
    if measure.statistic is Statistic.TILES:
        return _tiles(claim, str(records.frame["device"].iloc[0]))
    chosen, lacking, covered = _chosen(claim, _valued(records, measure), matrices)
    rows = chosen[np.isfinite(chosen[_VALUE].to_numpy(np.float64))]
    if rows.empty:
        return Answer(missing=lacking or _why_none(measure, chosen))
    least, greatest = _STATISTICS[measure.statistic](rows)
    twins = rows.loc[rows["matrix_kind"] == MatrixKind.TWIN.value, "plain"].unique()
    reservations = [
        f"stand-ins of the same size: {', '.join(twins)}" if len(twins) else "",
        lacking,
        measure.differs,
    ]
    apart = int((rows["speedup_from"] == "record").sum()) if measure.statistic in _SPEEDUPS else 0
    remarks = [
        f"{apart} of {len(rows)} ratios are of records taken apart" if apart else "",
        f"mean of {len(rows)} cases" if measure.statistic is Statistic.MEAN_LOSS else "",
    ]
    return Answer(least, greatest, len(rows), covered, tuple(filter(None, reservations)), tuple(filter(None, remarks)))


def _not_run(measure: Measure, records: Records) -> str:
    """Say what a measure needs that no record has; empty where there is all of it."""
    if measure.statistic is None:
        return measure.none
    kind = records.frame["device_kind"].iloc[0] if len(records.frame) else ""
    if measure.statistic in _TIMED and kind != DeviceKind.CUDA.value:
        return "no GPU was measured"
    if measure.of not in records.labels:
        return f"no record of {measure.of}"
    if measure.over and measure.over not in records.labels | records.baselines:
        return f"no record of {measure.over}"
    return ""


def _prediction(claim: Claim) -> Answer:
    """Look a score up in the study of the paper's predictors that ships: it depends on no device."""
    measure = claim.measure
    study = published_study(measure.of)
    if study is None:
        return Answer(missing=f"no study of the predictors of {measure.of}")
    score = study.nearest(measure.task, measure.model, measure.metric, measure.train_rows)
    if score is None or not score.values:
        return Answer(missing=f"{measure.model} could not be trained")
    scale = 100.0 if claim.unit == "%" else 1.0
    interval = Interval(*(scale * end for end in (score.interval.value, score.interval.low, score.interval.high)))
    remark = f"trained and tested on the published labels, {len(score.values)} splits of the public code's kind"
    return Answer(interval, interval, len(score.values), 1.0, tuple(filter(None, [score.note])), (remark,))


def _tiles(claim: Claim, device: str) -> Answer:
    """Look the agreement of a device's calibration with tiles up that it was not fitted to."""
    about = claim.conditions
    for held in published_agreement(device):
        if (held.operator, held.dtype) == (about.op, about.dtype):
            value = held.metric(claim.measure.metric)
            exact = Interval(nan if value is None else value, nan, nan)
            differs = tuple(filter(None, [claim.measure.differs]))
            return Answer(exact, exact, held.count, reservations=differs, remarks=(f"{held.count} tiles held out",))
    return Answer(missing=f"no calibration of {device} with tiles held out is kept")


def _fact(claim: Claim, records: Records, matrices: dict[str, tuple[str, ...]]) -> Answer:
    patterns = [pattern for name in claim.conditions.matrices for pattern in matrices[name]]
    rows = records.matrices[records.matrices["plain"].map(lambda name: _matches(name, patterns))]
    if rows.empty:
        return Answer(missing="no record of this matrix; stand-ins are made to its size and prove nothing")
    row = rows.iloc[0]
    if claim.measure.statistic is Statistic.DENSITY:
        value = row["nnz"] / row["num_rows"] / row["num_cols"]
    else:
        value = row[str(claim.measure.statistic)]
    exact = Interval(float(value), nan, nan)
    return Answer(exact, exact, len(rows))


def _valued(records: Records, measure: Measure) -> pd.DataFrame:
    """Give the rows of the measure with ``value`` and its ends, per case and NaN where there is none."""
    rows = records.of(measure)
    if measure.statistic in _SPEEDUPS:
        low, high = rows["speedup_low"], rows["speedup_high"]
        return rows.assign(**{_VALUE: rows["speedup"], _LOW: low, _HIGH: high})
    if measure.statistic in (Statistic.MEDIAN_MS, Statistic.TIME_SPREAD):
        times = {_VALUE: "median_us", _LOW: "median_us_low", _HIGH: "median_us_high"}
        return rows.assign(**{name: rows[column] * 1e-3 for name, column in times.items()})
    return rows.assign(value=_without_ends(records, measure, rows), value_low=nan, value_high=nan)


def _without_ends(records: Records, measure: Measure, rows: pd.DataFrame) -> pd.Series[float]:
    """Give the values of a statistic whose single cases have no interval."""
    if measure.statistic is Statistic.MEAN_LOSS:
        return 100 * (_relative_time(rows) / _of_other(records, measure, rows, "time") - 1).abs()
    if measure.statistic is Statistic.PADDED_SHARE:
        return 100 * rows["padding"] / (1 + rows["padding"])
    if measure.statistic is Statistic.MEMORY_RATIO:
        held = rows["device_bytes"].where((rows["status"] == Status.OK.value) & (rows["device_bytes"] > 0))
        return held / _of_other(records, measure, rows, "device_bytes")
    spent = _search_s(rows, measure)
    return _of_other(records, measure, rows, "search") / spent.where(spent > 0) if measure.over else spent


def _search_s(rows: pd.DataFrame, measure: Measure) -> pd.Series[float]:
    return rows["phases_s"].map(lambda spent: sum(spent.get(phase, 0.0) for phase in measure.phases) if spent else nan)


def _relative_time(rows: pd.DataFrame) -> pd.Series[float]:
    """Give the median over that of the interleaved baseline, which takes the drift between two cases out."""
    own = rows["samples_us"].map(lambda samples: np.median(samples) if len(samples) else nan)
    beside = rows["baseline_samples_us"].map(lambda samples: np.median(samples) if len(samples) else nan)
    return own / beside


def _of_other(records: Records, measure: Measure, rows: pd.DataFrame, what: str) -> pd.Series[float]:
    """Give the value of ``over`` in the cases of ``rows``."""
    other = records.frame[records.frame["label"] == measure.over].drop_duplicates(_KEY, keep="last")
    if what == "search":
        values = _search_s(other, measure)
    else:
        values = _relative_time(other) if what == "time" else other[what].astype(float)
    found = dict(zip(other[_KEY].itertuples(index=False, name=None), values, strict=True))
    keys = rows[_KEY].itertuples(index=False, name=None)
    return pd.Series([found.get(key, nan) or nan for key in keys], index=rows.index, dtype=np.float64)


def _chosen(claim: Claim, rows: pd.DataFrame, matrices: dict[str, tuple[str, ...]]) -> tuple[pd.DataFrame, str, float]:
    """Give the rows that the claim's conditions name, what they lack, and the share of matrices with a value."""
    about = claim.conditions
    if about.op:
        rows = rows[rows["op"] == about.op.value]
    if about.dtype:
        rows = rows[rows["dtype"] == about.dtype.value]
    if about.widths:
        rows = rows[rows["width"].isin(about.widths)]
    parts, absent, held = [], Counter[str](), 0
    for name in about.matrices:
        mine = _first_held(rows, matrices[name])
        parts.append(mine)
        solved = mine[np.isfinite(mine[_VALUE].to_numpy(np.float64))]
        held += not solved.empty
        if mine.empty:
            absent[name] += 1
            continue
        failed = mine[~mine.index.isin(solved.index)]
        for status in failed["status"]:
            absent[f"{name} ({'no value' if status == Status.OK.value else status})"] += 1
        for _ in set(about.widths) - set(mine["width"]):
            absent[f"{name} (width not run)"] += 1
    chosen = pd.concat(parts) if parts else rows.iloc[:0]
    named = [f"{count} of {name}" if count > 1 else name for name, count in absent.items()]
    shown = ", ".join(named[:_MOST_NAMED]) + (
        f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    )
    return chosen, f"without a result: {shown}" if named else "", held / len(about.matrices)


def _first_held(rows: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    for pattern in patterns:
        mine = rows[rows["plain"].map(lambda name, pattern=pattern: _matches(name, [pattern]))]
        if len(mine):
            return mine
    return rows.iloc[:0]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _why_none(measure: Measure, chosen: pd.DataFrame) -> str:
    if chosen.empty:
        return f"no record of {measure.of} under these conditions"
    return f"no value of {measure.of}" + (f" over {measure.over}" if measure.over else "")


Ends = tuple[Interval, Interval]


def _spread(rows: pd.DataFrame) -> Interval:
    alike = rows.groupby(["op", "dtype", "width", "num_rows", "num_cols", "nnz"])[_VALUE]
    return Interval(float((alike.max() / alike.min()).max()), nan, nan)


def _geomean(rows: pd.DataFrame) -> Interval:
    if len(rows) == 1:
        return _own(rows.iloc[0])
    clusters = list(rows["matrix"]) if rows["matrix"].nunique() > 1 else None
    return geometric_mean(rows[_VALUE].to_numpy(np.float64), clusters)


def _own(row: pd.Series) -> Interval:
    return Interval(float(row[_VALUE]), float(row[_LOW]), float(row[_HIGH]))


def _one(statistic: Callable[[pd.DataFrame], Interval]) -> Callable[[pd.DataFrame], Ends]:
    def both(rows: pd.DataFrame) -> Ends:
        interval = statistic(rows)
        return interval, interval

    return both


def _mean(rows: pd.DataFrame) -> Interval:
    # The widths of one matrix are no sample of anything: there is no interval.
    return Interval(float(rows[_VALUE].mean()), nan, nan)


def _least(rows: pd.DataFrame) -> Interval:
    return _own(rows.iloc[int(np.argmin(rows[_VALUE].to_numpy(np.float64)))])


def _greatest(rows: pd.DataFrame) -> Interval:
    return _own(rows.iloc[int(np.argmax(rows[_VALUE].to_numpy(np.float64)))])


def _range(statistic: Callable[[pd.DataFrame], Interval]) -> Callable[[pd.DataFrame], Ends]:
    def ends(rows: pd.DataFrame) -> Ends:
        each = sorted((statistic(part) for _, part in rows.groupby("matrix")), key=lambda interval: interval.value)
        return each[0], each[-1]

    return ends


_STATISTICS: dict[Statistic, Callable[[pd.DataFrame], Ends]] = {
    Statistic.GEOMEAN_SPEEDUP: _one(_geomean),
    Statistic.SPEEDUP_RANGE: _range(_geomean),
    Statistic.MIN_SPEEDUP: _one(_least),
    Statistic.MAX_SPEEDUP: _one(_greatest),
    Statistic.MEDIAN_MS: _one(_geomean),
    Statistic.SEARCH_S: _one(_mean),
    Statistic.SEARCH_RANGE_S: _range(_mean),
    Statistic.SEARCH_RATIO: _one(_geomean),
    Statistic.MAX_SEARCH_RATIO: _one(_greatest),
    Statistic.MEMORY_RATIO: _one(_geomean),
    Statistic.MEAN_LOSS: _one(_mean),
    Statistic.TIME_SPREAD: _one(_spread),
    Statistic.PADDED_SHARE: _one(_mean),
}
