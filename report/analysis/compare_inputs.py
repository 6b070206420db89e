"""What a comparison starts from: the values of every run as logarithms with their errors, and two sides of such runs.

A logarithm turns ratios into differences, and a relative spread into a standard deviation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log, nan, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from spmark.impls.core.errors import RecordError
from spmark.records.schema import Environment, Status
from spmark.report.analysis.statistics import CONFIDENCE, FEWEST_SAMPLES, ratio_interval
from spmark.report.records import load_every_run

TIME, SPEEDUP, PHASE = "time", "speedup", "phase "
"""Quantities: the median time, the speed-up over the interleaved baseline, and ``phase`` with a phase's name."""
CACHED_PHASES = frozenset({"compile"})
"""Phases that are not observed: their seconds depend on whether a cache was warm, which no record says."""
LEAST_PHASE_S = 1e-3
"""Shorter phases are not observed: they cost nothing, and their spread is that of the operating system."""
_RUN = ["device", "device_kind", "case_id", "pattern", "implementation_version"]
_NORMAL = float(special.ndtri((1 + CONFIDENCE) / 2))
_CASE = ["device", "case_id"]
_VERSION = ["implementation_version", "driver", "protocol_version", "flush"]
_FACTS = ("driver", "cuda", "cpu", "cores", "system", "commit")


class Observed(NamedTuple):
    """One quantity of one case over the runs of one side; (n,) float64 arrays in the order of the runs.

    ``value`` holds natural logarithms, ``error`` their standard errors within each run, and ``duration_us`` the
    durations that the spread between runs depends on.
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    duration_us: NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    cases: pd.DataFrame
    """The newest run of each case, by device and case id; ``seen`` has its ok runs of that version, by quantity; runs
    with another baseline than the newest run's have no speed-up there."""
    environments: tuple[Environment, ...]

    @property
    def contexts(self) -> dict[str, set[str]]:
        """What must be the same for times of a device to be compared: its drivers and protocols, as text."""
        found: dict[str, set[str]] = {}
        columns = self.cases[["device", "driver", "protocol_version"]]
        for device, driver, protocol in columns.itertuples(index=False):
            found.setdefault(device, set()).add(f"driver {driver or 'none'}, protocol {protocol}")
        return found

    @property
    def device(self) -> str:
        """The device, the first by name of several."""
        return min(self.contexts)


def read_side(path: str | Path) -> Side:
    """Read a folder or file of records; of each case the newest version counts, and all its runs.

    Raises
    ------
    RecordError
        There are no records, or some have no environment to say which driver they ran with.
    """
    frame = load_every_run(path)
    if frame.empty:
        raise RecordError(f"{path}: expected records to compare, found none; run a sweep first")
    unknown = int(frame["facts"].isna().sum())
    if unknown:
        raise RecordError(
            f"{path}: expected the environment of every record in environments.jsonl beside it, found none of "
            f"{unknown} of {len(frame)}; copy that file too"
        )
    return side_of(frame.assign(driver=[facts.driver for facts in frame["facts"]]), str(path))


def side_of(frame: pd.DataFrame, name: str) -> Side:
    """Group loaded records, with a column ``driver``, by case."""
    newest = frame.groupby(_CASE, sort=False)[_VERSION].transform("last")
    same = frame[(frame[_VERSION] == newest).all(axis=1)]
    # Only runs with the baseline of a case's last run keep their baseline samples: of these, speed-ups agree.
    baselines = same["baseline_implementation"]
    of_last = baselines == same.groupby(_CASE, sort=False)["baseline_implementation"].transform("last")
    nothing = pd.Series([np.empty(0)] * len(same), same.index, object)
    observed = observe(same.assign(baseline_samples_us=same["baseline_samples_us"].where(of_last, nothing)))
    seen: dict[Any, Any] = {}
    for (device, case, quantity), rows in observed.groupby([*_CASE, "quantity"], sort=False):
        arrays = (rows[column].to_numpy(np.float64) for column in Observed._fields)
        seen.setdefault((device, case), {})[str(quantity)] = Observed(*arrays)
    last = same.drop_duplicates(_CASE, keep="last").set_index(_CASE, drop=False)
    environments = dict(zip(same["environment"], same["facts"], strict=True))
    return Side(name, last.assign(seen=[seen.get(key, {}) for key in last.index]), tuple(environments.values()))


def paired(before: Side, after: Side, across: bool) -> tuple[list[tuple[Any, Any]], list[str], list[str]]:
    """Pair the cases of two sides.

    Parameters
    ----------
    before, after : Side
        The two sides.
    across : bool
        Match cases of two devices, drivers or protocols; ``device`` is then empty.

    Returns
    -------
    pairs : list of (row, row)
        The newest runs of the cases that both sides have, in the order of the first.
    only_before, only_after : list of str
        Ids of the cases that one side alone has.

    Raises
    ------
    RecordError
        The sides differ in what may not differ, as in the flush, or share no case.
    """
    _refuse_several_flushes(before, after)
    if not across:
        _refuse_other_contexts(before, after)
    first, second = (_cases(side, across) for side in (before, after))
    first = _as_named_in(first, second)
    second = _as_named_in(second, first)
    common = first.index[first.index.isin(second.index)]
    if common.empty:
        raise RecordError(
            f"{before.name} and {after.name}: expected cases that both have, found none among "
            f"{len(first)} and {len(second)}; run the same sweep on both sides"
        )
    pairs = list(zip(*(cases.loc[common].itertuples(index=False) for cases in (first, second)), strict=True))
    only_before, only_after = (list(cases.loc[~cases.index.isin(common), "case_id"]) for cases in (first, second))
    return pairs, only_before, only_after


def differences(before: Side, after: Side) -> list[str]:
    """Say what else differs between the machines and the software of the two sides."""
    old, new = (_facts(side.environments) for side in (before, after))
    names = [name for name in sorted({*old, *new}) if old[name] != new[name]]
    return [f"{name}: {' -> '.join(', '.join(sorted(side[name])) or 'none' for side in (old, new))}" for name in names]


def observe(frame: pd.DataFrame) -> pd.DataFrame:
    """Reduce every ok run to its observed quantities.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_every_run` gives it.

    Returns
    -------
    DataFrame
        One row per run and quantity, in the frame's order: ``device``, ``device_kind``, ``case_id``, ``pattern``,
        ``implementation_version`` and ``quantity``; ``value`` is the natural logarithm, ``error`` its standard error
        within the run (0 for a phase, which is measured once), ``duration_us`` what the spread between runs depends
        on. Medians of fewer than `FEWEST_SAMPLES` samples have no error (NaN).
    """
    ok = frame[frame["status"] == Status.OK.value]
    rows = [(*(getattr(run, name) for name in _RUN), *seen) for run in ok.itertuples() for seen in _quantities(run)]
    return pd.DataFrame(rows, columns=[*_RUN, "quantity", *Observed._fields])


def log_median_error(samples: ArrayLike) -> float:
    """Give the standard error of the logarithm of a median; NaN for fewer than `FEWEST_SAMPLES` samples.

    The error is the bootstrap's, in closed form: the resampled median is the i-th smallest sample with a probability
    that the incomplete beta function gives (Maritz and Jarrett, A Note on Estimating the Variance of the Sample Median,
    Journal of the American Statistical Association 1978). O(n log n).
    """
    logs = np.log(np.sort(np.asarray(samples, np.float64)))
    if logs.size < FEWEST_SAMPLES:
        return nan
    half = (logs.size + 1) / 2
    weights = np.diff(special.betainc(half, half, np.arange(logs.size + 1) / logs.size))
    mean = float(weights @ logs)
    return sqrt(max(0.0, float(weights @ (logs - mean) ** 2)))


def _quantities(run: Any) -> Iterator[tuple[str, float, float, float]]:
    own, beside = run.samples_us, run.baseline_samples_us
    if own.size:
        median = float(np.median(own))
        yield TIME, log(median), log_median_error(own), median
        if beside.size:
            ratio = ratio_interval(beside, own)
            yield SPEEDUP, log(ratio.value), log(ratio.high / ratio.low) / 2 / _NORMAL, median
    for phase, seconds in run.phases_s.items():
        if phase not in CACHED_PHASES and seconds >= LEAST_PHASE_S:
            yield PHASE + phase, log(seconds), 0.0, seconds * 1e6


def _facts(environments: Iterable[Environment]) -> dict[str, set[str]]:
    told: dict[str, set[str]] = defaultdict(set)
    for environment in environments:
        simple = {name: str(getattr(environment, name)) for name in _FACTS}
        for name, value in ({"device": environment.device.name} | simple | environment.packages).items():
            told[name] |= {value} - {""}
    return told


def _cases(side: Side, across: bool) -> pd.DataFrame:
    if not across:
        return side.cases
    devices = sorted(side.contexts)
    if len(devices) > 1:
        raise RecordError(
            f"{side.name}: expected records of one device with --across, found {', '.join(devices)}; "
            "name the folder of one"
        )
    return side.cases.assign(device="").set_index("case_id", drop=False)


def _as_named_in(cases: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Give cases by the ids of others, where these say that they know a case by another id."""
    names = {one: case for case, known in zip(others["case_id"], others["other_ids"], strict=True) for one in known}
    if not names:
        return cases
    own = set(others["case_id"])
    ids = cases["case_id"].map(lambda one: one if one in own else names.get(one, one))
    return cases.assign(case_id=ids).set_index(list(cases.index.names), drop=False)


def _refuse_other_contexts(before: Side, after: Side) -> None:
    first, second = before.contexts, after.contexts
    shared = first.keys() & second.keys()
    if not shared or any(first[device] != second[device] for device in shared):
        found = "\n".join(
            f"  {side.name}: " + "; ".join(sorted(f"{name}, {told}" for name, of in contexts.items() for told in of))
            for side, contexts in ((before, first), (after, second))
        )
        raise RecordError(
            f"expected the same GPU, driver and protocol on both sides, found\n{found}\n"
            "measure one side again, or compare speed-ups over the baseline only, with --across"
        )


def _refuse_several_flushes(before: Side, after: Side) -> None:
    found = {side.name: sorted(side.cases["flush"].unique()) for side in (before, after)}
    if len({flush for flushes in found.values() for flush in flushes}) > 1:
        told = "\n".join(f"  {name}: {', '.join(flushes)}" for name, flushes in found.items())
        raise RecordError(
            f"expected one way to flush caches on both sides, found\n{told}\n"
            "measure one side again, with the other's --flush and another --out"
        )
