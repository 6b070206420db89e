"""How records of one device answer a published claim: with the statistic that its `Measure` names, and an interval.

Only cases of the claim's op, dtype, widths and matrices count; the answer names the missing ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import isfinite, nan
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.records.schema import MatrixKind, Status
from spmark.report.analysis.cases import PROBLEM, beside, derive, each_problem_once, medians, spent_s
from spmark.report.analysis.means import over_matrices
from spmark.report.analysis.statistics import NOTHING, Interval
from spmark.report.analysis.tiles import published_agreement
from spmark.report.analysis.transfers import Moved
from spmark.report.claims.published import FACTS, RANGES, TRANSFERS, Claim, Measure, Published, Statistic
from spmark.report.claims.study import published_study
from spmark.report.claims.transfers import moved_number

_SPEEDUPS = (Statistic.GEOMEAN_SPEEDUP, Statistic.SPEEDUP_RANGE, Statistic.MIN_SPEEDUP, Statistic.MAX_SPEEDUP)
_TIMED = (*_SPEEDUPS, Statistic.MEDIAN_MS, Statistic.MEAN_LOSS, Statistic.TIME_SPREAD)
_ALIKE = 1.028
"""Ratios up to this one are no gain: medians of 20 runs of one case differ by so much."""
_APART = {
    "record": "are of records taken apart",
    "common": "go through the baseline that was interleaved with both",
}
"""What the scorecard says of speed-ups whose two sides did not run in turn, by `speedup_from`."""
_VALUE, _LOW, _HIGH = "value", "value_low", "value_high"
_OF_CLAIM = (
    *PROBLEM, "label", "plain", "pattern", "status", "started_at", "matrix_kind", "num_rows", "num_cols", "nnz",
    "speedup_from", _VALUE, _LOW, _HIGH,
)  # fmt: skip
"""Columns that a claim is answered from: a thousand claims choose their rows out of them."""
_MOST_NAMED = 4
_NO_SIZES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Answer:
    """Our number beside a published one."""

    least: Interval = NOTHING
    greatest: Interval = NOTHING
    """The same as ``least`` where the claim is one number."""
    cases: int = 0
    """Cases that the answer rests on."""
    covered: float = 1.0
    """Share of the claim's matrices that the answer rests on."""
    reservations: tuple[str, ...] = ()
    """Why this is not the published experiment: stand-ins, cases without a result, other conditions."""
    remarks: tuple[str, ...] = ()
    """Remarks for the reader that cast no doubt on the answer."""
    missing: str = ""
    """Why there is no answer."""

    @property
    def found(self) -> bool:
        """Whether there is a number."""
        return isfinite(self.least.value)

    @classmethod
    def looked_up(cls, number: Interval, cases: int, doubt: str = "", remark: str = "") -> Self:
        """Give the answer that is one number: of a matrix, a calibration or a study."""
        return cls(number, number, cases, 1.0, tuple(filter(None, [doubt])), tuple(filter(None, [remark])))


class Records:
    """Records of one device, and the columns derived from them so far.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.current` gives it, of one device, best with rows for each sweep.
    moved : Moved, optional
        Studies of moved models beside the records: what they say does not depend on the device.
    papers : sequence of Published
        Those whose claims are asked for: columns are derived for the matrices that their claims name, or for all.
    """

    def __init__(self, frame: pd.DataFrame, moved: Moved | None = None, papers: Sequence[Published] = ()) -> None:
        names = frame["matrix"].map(lambda name: str(name).split(" #", 1)[0])
        self.frame = frame.assign(plain=names).reset_index(drop=True)
        self.moved = moved
        self.labels, self.kinds = set(frame["label"]), set(frame["device_kind"])
        # A baseline that was measured in turn with others need not have a record of its own.
        self.beside = self.labels | set(frame["baseline_implementation"])
        known = self.frame[(self.frame["matrix_hash"] != "") & (self.frame["matrix_kind"] != MatrixKind.TWIN.value)]
        self.matrices = known.drop_duplicates("matrix_hash")[["plain", "num_rows", "num_cols", "nnz", "relations"]]
        """One row for each loaded matrix; stand-ins are left out."""
        self._read: dict[tuple[str, str], set[str]] = {}
        for published in papers:
            for claim in published.claims:
                patterns = self._read.setdefault((claim.measure.of, claim.measure.over), set())
                patterns.update(*(published.matrices.get(name, ()) for name in claim.conditions.matrices))
        self._together: dict[tuple[str, str], pd.DataFrame] = {}
        self._derived: dict[tuple[str, str], pd.DataFrame] = {}
        self._valued: dict[Measure, pd.DataFrame] = {}

    def of(self, measure: Measure) -> pd.DataFrame:
        """Give the rows of ``measure.of`` with `derive`'s columns over ``measure.over``."""
        key = (measure.of, measure.over)
        if key not in self._derived:
            derived = derive(self.together(measure), measure.over or None)
            self._derived[key] = derived[derived["label"] == measure.of]
        return self._derived[key]

    def together(self, measure: Measure) -> pd.DataFrame:
        """Give one row for each case of ``measure.of`` and ``measure.over``.

        It is of the newest sweep that solved a problem with both, else the newest: clocks differ between sweeps, and
        what other sweeps measured later of one side must not change the ratio.
        """
        key = (measure.of, measure.over)
        if key not in self._together:
            part = self.frame[self.frame["label"].isin([name for name in key if name])]
            part = part[_named(part["plain"], self._read[key])] if key in self._read else part
            ran = part.assign(solved=part["label"].where(part["status"] == Status.OK.value)).groupby(
                [*PROBLEM, "sweep"]
            )
            part = part.assign(both=ran["solved"].transform("nunique"), last=ran["started_at"].transform("max"))
            part = part.sort_values(["both", "last", "started_at"], kind="stable")
            part = part.drop_duplicates([*PROBLEM, "label"], keep="last")
            self._together[key] = part.sort_index().reset_index(drop=True)
        return self._together[key]

    def valued(self, measure: Measure) -> pd.DataFrame:
        """Give the rows of the measure with ``value`` and its ends, per case and NaN where there is none."""
        if measure not in self._valued:
            self._valued[measure] = _valued(self, measure)[list(_OF_CLAIM)]
        return self._valued[measure]


def answer(
    claim: Claim, records: Records, matrices: dict[str, tuple[str, ...]], sizes: Mapping[str, int] = _NO_SIZES
) -> Answer:
    """Compute how records answer a claim.

    Parameters
    ----------
    claim : Claim
        What was published.
    records : Records
        Of one device.
    matrices : dict
        Our matrix ids by the paper's names, as `Published` has them.
    sizes : mapping of str to int
        How many matrices such a name stands for, as `Published` has them.
    """
    measure = claim.measure
    if measure.statistic in (*FACTS, *TRANSFERS):
        return _transfer(claim, records.moved) if measure.statistic in TRANSFERS else _fact(claim, records, matrices)
    missing = _not_run(measure, records)
    if missing or measure.statistic is None:
        return Answer(missing=missing)
    if measure.statistic is Statistic.PREDICTION:
        return _prediction(claim)
    if measure.statistic is Statistic.TILES:
        return _tiles(claim, str(records.frame["device"].iloc[0]))
    chosen, lacking, covered = _chosen(claim, records.valued(measure), matrices, sizes)
    rows = each_problem_once(chosen[np.isfinite(chosen[_VALUE].to_numpy(np.float64))])
    if rows.empty:
        return Answer(missing="; ".join(filter(None, (lacking or _why_none(measure, chosen), measure.differs))))
    least, greatest = _ends(rows, measure.statistic)
    twins = rows.loc[rows["matrix_kind"] == MatrixKind.TWIN.value, "plain"].unique()
    reservations = [
        f"stand-ins of the same size: {', '.join(twins)}" if len(twins) else "",
        lacking,
        measure.differs,
    ]
    sources: Mapping[Any, int] = dict(rows["speedup_from"].value_counts()) if measure.statistic in _SPEEDUPS else {}
    pays_nowhere = measure.statistic in _SPEEDUPS and rows[_VALUE].max() <= _ALIKE
    remarks = [
        measure.nowhere if pays_nowhere else "",
        *(f"{sources[name]} of {len(rows)} ratios {said}" for name, said in _APART.items() if name in sources),
        f"mean of {len(rows)} cases" if measure.statistic is Statistic.MEAN_LOSS else "",
    ]
    return Answer(least, greatest, len(rows), covered, tuple(filter(None, reservations)), tuple(filter(None, remarks)))


def _not_run(measure: Measure, records: Records) -> str:
    """Name what a measure needs and no record has; empty where nothing is missing."""
    if measure.statistic is None:
        return measure.none
    if measure.statistic in _TIMED and DeviceKind.CUDA.value not in records.kinds:
        return "no GPU was measured"
    lacking = {measure.of} - records.labels or {measure.over} - records.beside - {""}
    return f"no record of {lacking.pop()}" if lacking else ""


def _prediction(claim: Claim) -> Answer:
    """Look up a score in the shipped study of the paper's predictors: scores do not depend on the device."""
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
    return Answer.looked_up(interval, len(score.values), score.note, remark)


def _transfer(claim: Claim, moved: Moved | None) -> Answer:
    """Look up a number in the studies of moved models that were reported with the records."""
    found = moved_number(claim, moved)
    if isinstance(found, str):
        return Answer(missing=found)
    return Answer.looked_up(found.interval, found.matrices, claim.measure.differs, found.remark)


def _tiles(claim: Claim, device: str) -> Answer:
    """Look up how well a device's calibration agrees with tiles that it was not fitted to."""
    about = claim.conditions
    for agreement in published_agreement(device):
        if (agreement.operator, agreement.dtype) == (about.op, about.dtype):
            value = agreement.metric(claim.measure.metric)
            exact = Interval(nan if value is None else value, nan, nan)
            told = f"{agreement.count} tiles held out"
            return Answer.looked_up(exact, agreement.count, claim.measure.differs, told)
    return Answer(missing=f"no calibration of {device} with tiles held out is kept")


def _fact(claim: Claim, records: Records, matrices: dict[str, tuple[str, ...]]) -> Answer:
    patterns = [pattern for name in claim.conditions.matrices for pattern in matrices[name]]
    rows = records.matrices[_named(records.matrices["plain"], patterns)]
    if rows.empty:
        return Answer(missing="no record of this matrix; stand-ins are made to its size and prove nothing")
    row, statistic = rows.iloc[0], claim.measure.statistic
    density = row["nnz"] / row["num_rows"] / row["num_cols"]
    value = density if statistic is Statistic.DENSITY else row[str(statistic)]
    return Answer.looked_up(Interval(float(value), nan, nan), len(rows))


def _valued(records: Records, measure: Measure) -> pd.DataFrame:
    rows, statistic = records.of(measure), measure.statistic
    of_other = partial(_of_other, records, measure, rows)
    value: pd.Series[float]
    if statistic in _SPEEDUPS or statistic in (Statistic.MEDIAN_MS, Statistic.TIME_SPREAD):
        name, scale = ("speedup", 1.0) if statistic in _SPEEDUPS else ("median_us", 1e-3)
        ends = {_VALUE: rows[name], _LOW: rows[f"{name}_low"], _HIGH: rows[f"{name}_high"]}
        return rows.assign(**{column: numbers * scale for column, numbers in ends.items()})
    if statistic is Statistic.MEAN_LOSS:
        value = 100 * (_relative_time(rows) / of_other(_relative_time) - 1).abs()
    elif statistic is Statistic.PADDED_SHARE:
        value = 100 * rows["padding"] / (1 + rows["padding"])
    elif statistic is Statistic.CONFIG_RANGE:
        value = rows["config"].map(lambda config: (config or {}).get(measure.metric, nan)).astype(float)
    elif statistic is Statistic.MEMORY_RATIO:
        known = (rows["status"] == Status.OK.value) & (rows["device_bytes"] > 0)
        value = rows["device_bytes"].where(known) / of_other(lambda other: other["device_bytes"])
    else:
        value = _search_s(rows, measure)
        if measure.over:
            value = of_other(partial(_search_s, measure=measure)) / value.where(value > 0)
    return rows.assign(value=value, value_low=nan, value_high=nan)


def _search_s(rows: pd.DataFrame, measure: Measure) -> pd.Series[float]:
    return spent_s(rows["phases_s"], measure.phases).where(rows["phases_s"].map(len) > 0)


def _relative_time(rows: pd.DataFrame) -> pd.Series[float]:
    """Give the median over that of the interleaved baseline, which cancels the drift between two cases."""
    return medians(rows["samples_us"]) / medians(rows["baseline_samples_us"])


def _of_other(
    records: Records, measure: Measure, rows: pd.DataFrame, value: Callable[[pd.DataFrame], pd.Series[Any]]
) -> pd.Series[float]:
    """Give the value of ``over`` in the cases of ``rows``; NaN where the value is missing or 0."""
    other = records.together(measure)
    other = other[other["label"] == measure.over]
    return beside(rows, other.assign(value=value(other)), _VALUE)[_VALUE].astype(float).replace(0.0, nan)


def _chosen(
    claim: Claim, rows: pd.DataFrame, matrices: dict[str, tuple[str, ...]], sizes: Mapping[str, int]
) -> tuple[pd.DataFrame, str, float]:
    """Give the rows that the claim's conditions name, the missing cases, and the share of matrices with a value."""
    about = claim.conditions
    if about.op:
        rows = rows[rows["op"] == about.op.value]
    if about.dtype:
        rows = rows[rows["dtype"] == about.dtype.value]
    if about.widths:
        rows = rows[rows["width"].isin(about.widths)]
    parts, absent, answered, few = [rows.iloc[:0]], Counter[str](), 0.0, list[str]()
    for name in about.matrices:
        of_pattern = (rows[_named(rows["plain"], [pattern])] for pattern in matrices[name])
        mine = next((part for part in of_pattern if len(part)), rows.iloc[:0])
        parts.append(mine)
        valued = np.isfinite(mine[_VALUE])
        failed, there = mine.loc[~valued, "status"], len(mine.loc[valued, ["plain", "width"]].drop_duplicates())
        size = sizes.get(name, 1)
        answered += min(1.0, there / size)
        few += [f"{there} of {size:,} {name}"] if there < size > 1 else []
        if mine.empty:
            absent[name] += 1
            continue
        absent.update(f"{name} ({'no value' if status == Status.OK.value else status})" for status in failed)
        absent.update(f"{name} (width not run)" for _ in set(about.widths) - set(mine["width"]))
    named = [f"{count} of {name}" if count > 1 else name for name, count in absent.items()]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    lacking = [f"rests on {', '.join(few)}"] if few else []
    lacking += [f"without a result: {', '.join(named[:_MOST_NAMED])}{more}"] if named else []
    return pd.concat(parts), "; ".join(lacking), answered / len(about.matrices)


def _named(names: pd.Series[str], patterns: Collection[str]) -> pd.Series[bool]:
    """Say which names match one of the patterns; many rows share a name."""
    return names.isin([name for name in names.unique() if any(fnmatchcase(name, pattern) for pattern in patterns)])


def _why_none(measure: Measure, chosen: pd.DataFrame) -> str:
    if chosen.empty:
        return f"no record of {measure.of} under these conditions"
    return f"no value of {measure.of}" + (f" over {measure.over}" if measure.over else "")


def _ends(rows: pd.DataFrame, statistic: Statistic) -> tuple[Interval, Interval]:
    """Give the least and the greatest of cases or matrices where a statistic is a range, else the statistic twice."""
    by = rows.index if statistic is Statistic.CONFIG_RANGE else "matrix"
    parts = [part for _, part in rows.groupby(by)] if statistic in RANGES else [rows]
    each = sorted(map(_STATISTICS[statistic], parts), key=lambda interval: interval.value)
    return each[0], each[-1]


def _spread(rows: pd.DataFrame) -> Interval:
    alike = rows.groupby(["op", "dtype", "width", "num_rows", "num_cols", "nnz"])[_VALUE]
    return Interval(float((alike.max() / alike.min()).max()), nan, nan)


def _geomean(rows: pd.DataFrame) -> Interval:
    return over_matrices(rows, _VALUE) if len(rows) > 1 else _least(rows)


def _mean(rows: pd.DataFrame) -> Interval:
    # An interval needs several matrices: the widths of one matrix are not drawn at random.
    return Interval(float(rows[_VALUE].mean()), nan, nan)


def _least(rows: pd.DataFrame, sign: int = 1) -> Interval:
    row = rows.iloc[int(np.argmin(sign * rows[_VALUE].to_numpy(np.float64)))]
    return Interval(float(row[_VALUE]), float(row[_LOW]), float(row[_HIGH]))


def _greatest(rows: pd.DataFrame) -> Interval:
    return _least(rows, -1)


_STATISTICS: dict[Statistic, Callable[[pd.DataFrame], Interval]] = {
    Statistic.GEOMEAN_SPEEDUP: _geomean,
    Statistic.SPEEDUP_RANGE: _geomean,
    Statistic.MIN_SPEEDUP: _least,
    Statistic.MAX_SPEEDUP: _greatest,
    Statistic.MEDIAN_MS: _geomean,
    Statistic.SEARCH_S: _mean,
    Statistic.SEARCH_RANGE_S: _mean,
    Statistic.SEARCH_RATIO: _geomean,
    Statistic.SEARCH_RATIO_RANGE: _geomean,
    Statistic.MAX_SEARCH_RATIO: _greatest,
    Statistic.MEMORY_RATIO: _geomean,
    Statistic.MEAN_LOSS: _mean,
    Statistic.TIME_SPREAD: _spread,
    Statistic.CONFIG_RANGE: _mean,
    Statistic.PADDED_SHARE: _mean,
}
