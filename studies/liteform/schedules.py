"""From times of many schedules to the table of a GPU: schedules by size, weights of the cost, when to gather rows.

Measured times are kept row by row (`spmark.studies.liteform.gpu`): making a table again needs no GPU. Hardly two
matrices were tried with the same schedules. The loss of a schedule against the best is therefore averaged over matrices
of about the same size and widest bucket, and near matrices count more (Nadaraya, "On estimating regression", 1964).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.impls.core.problem import DType
from spmark.impls.core.untrusted import Frozen
from spmark.impls.formats.hyb import THIRDS
from spmark.impls.liteform.cost import POWERS, BucketCounts, Weights, weighed
from spmark.impls.liteform.schedule import CellSchedule, Gathering, ScheduleEntry, ScheduleTable, nearest
from spmark.studies.rows import Row, one_device

COUNTED = ("rows", "folded", "longer", "split", "split_slots")
"""Fields of `spmark.impls.liteform.cost.BucketCounts` that a row keeps."""
COUNTED_THIRDS = ("slots", "split_slots")
"""Fields that differ where buckets have widths between the powers of two; a row keeps these counts, too."""
_SPACE = {
    "atomic": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0),
    "slot": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0),
    "chain": (0.0, 1e3, 3e3, 1e4, 2e4, 4e4),
    "beyond": (3e2, 1e3, 3e3, 1e4, 3e4, 1e5),
    "launch": (0.0, 2.5e5, 5e5, 1e6, 2e6, 4e6),
}
_STARTS = tuple(
    Weights(atomic, slot, *rest)
    for atomic, slot, rest in product((2.0, 4.0), (0.2, 0.5), ((1e4, 3e3, 1e6), (0.0, 3e2, 0.0)))
)
_SHARES = (0.97, 0.95, 0.9, 0.85, 0.8, 0.7)
_WIDTHS = (1, 64, 128, 256)
_LOADS = (0, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 32_000_000, 64_000_000)
_CREDIBLE, _WORTH = 0.1, 0.01
"""Greatest share of the time that gathering is believed to gain or lose, since a median may be off by more; and the
share that gathering must gain, since finding an order takes time."""
MANY: Final = 6
"""Least number of schedules of one format that are compared."""
_NNZ = tuple(1 << power for power in range(12, 25, 2))
_MAX_WIDTHS = (8, 16, 32, 64, 128, 512)
_REACH_NNZ, _REACH_WIDTH = 1.0, 0.5
"""Standard deviations of the weights, in powers of two."""
_ANYWHERE = 0.001
"""Weight of matrices of quite another size: they decide where nothing near was measured."""
_UNTRIED, _DOUBT = 0.15, 1.0
"""Loss that every schedule is given before any measurement, and as how many matrices this loss counts."""


class TimedSchedule(Frozen):
    """One way of running CELL in one partition, with its time."""

    max_width: int
    gathered: bool
    schedule: CellSchedule
    time_us: float
    tail_in_last: bool = False
    """Of rows of before."""
    thirds: bool = False
    """Whether the format has bucket widths between the powers of two; up to 16 wide there are none."""


class ScheduleRow(Row):
    """Measurements of one matrix at one J in one dtype."""

    matrix: str
    device: str
    dtype: DType
    width: int
    num_cols: int
    nnz: int
    features: dict[str, float] = {}
    """Of the matrix, in rows of before; nothing reads them."""
    counted: dict[str, tuple[int, ...]]
    """Counts of one partition by power of two, under the names of `COUNTED`."""
    counted_thirds: dict[str, tuple[int, ...]] = {}
    """Counts with widths between the powers of two, under the names of `COUNTED_THIRDS`; empty where not counted."""
    given_share: float
    """Share of rows of B that a block reads for the first time (`spmark.impls.formats.nearness.distinct_share`)."""
    gathered_share: float
    timed: tuple[TimedSchedule, ...]
    direct: tuple[Any, ...] = ()
    """Times of another kernel, in rows of before; nothing reads them."""

    def counts(self, thirds: bool) -> BucketCounts:
        """Give the counts that weights price."""
        told = {name: np.array([self.counted[name]], np.int64) for name in COUNTED}
        told["slots"] = told["rows"] << np.arange(POWERS)
        told["slots"][:, -1] -= told["longer"][:, -1] << POWERS - 1
        if thirds:
            told |= {name: np.array([counts], np.int64) for name, counts in self.counted_thirds.items()}
        return BucketCounts(**told)


def make_table(rows: Sequence[ScheduleRow], made_with: str = "") -> ScheduleTable:
    """Choose the entries, weights and bounds of a GPU that take least time over the measured rows.

    Parameters
    ----------
    rows : sequence of ScheduleRow
        Rows of one device.
    made_with : str
        The command.

    Raises
    ------
    DatasetError
        There are no rows, or rows of several devices.
    """
    device = one_device((row.device for row in rows), "expected schedules")
    times = times_of(rows)
    gathering, thirds = fitted_gathering(rows, times), fitted_thirds(times)
    return ScheduleTable(
        device=device,
        entries=tuple(fitted_entries(times)),
        weights=fitted_weights(rows, times, gathered=False, thirds=thirds),
        gathering=gathering and replace(gathering, weights=fitted_weights(rows, times, gathered=True, thirds=thirds)),
        thirds=thirds,
        made_with=made_with,
    )


def times_of(rows: Sequence[ScheduleRow]) -> pd.DataFrame:
    """Give a line for each timed schedule: the fields of `TimedSchedule`, and number, nnz, dtype and J of its row.

    Formats whose tails stay in the last bucket are left out: they were timed at one width each, which decides nothing.
    """
    return pd.DataFrame(
        {"row": number, "dtype": row.dtype, "width": row.width, "nnz": max(row.nnz, 1), **dict(timed)}
        for number, row in enumerate(rows)
        for timed in row.timed
        if not timed.tail_in_last
    )


def fitted_entries(times: pd.DataFrame) -> list[ScheduleEntry]:
    """Choose schedules over a grid of sizes and widest buckets; leave out entries that the nearest entry repeats.

    Parameters
    ----------
    times : DataFrame
        Of `times_of`, for one device.
    """
    run = [one.canonical(width) for one, width in zip(times["schedule"], times["max_width"], strict=True)]
    known, times = {repr(one): one for one in run}, times.assign(schedule=list(map(repr, run)))
    entries = []
    for about, alike in times.groupby(["dtype", "width", "gathered"], sort=False):
        tried = alike.groupby(["row", "nnz", "max_width", "thirds", "schedule"])["time_us"].min().unstack()
        tried = tried[tried.notna().sum(axis=1) >= MANY]
        entries += _thinned(list(_grid(tried, dict(zip(("dtype", "width", "gathered"), about, strict=True)), known)))
    return entries


def _grid(tried: pd.DataFrame, about: Mapping[str, Any], known: Mapping[str, CellSchedule]) -> Iterator[ScheduleEntry]:
    """Give the best schedule at every point of the grid, for formats of one dtype, J and order of rows.

    ``tried`` has a line for each format and a column for each schedule, NaN where it was not tried.
    """
    tried = tried.dropna(axis=1, how="all")
    schedules = [known[str(name)] for name in tried]
    losses = np.log(tried.div(tried.min(axis=1), axis=0).to_numpy())
    was_tried, losses = ~np.isnan(losses), np.nan_to_num(losses)
    sizes, widths = (np.log2(tried.index.get_level_values(name)) for name in ("nnz", "max_width"))
    for max_width in _MAX_WIDTHS:
        legal = [number for number, one in enumerate(schedules) if one.canonical(max_width) == one]
        for nnz in _NNZ:
            away = ((sizes - np.log2(nnz)) / _REACH_NNZ) ** 2 + ((widths - np.log2(max_width)) / _REACH_WIDTH) ** 2
            near = np.exp(-away / 2) + _ANYWHERE
            expected = (near @ losses + _UNTRIED * _DOUBT) / (near @ was_tried + _DOUBT)
            if legal:
                chosen = schedules[min(legal, key=lambda number: expected[number])]
                yield ScheduleEntry(**about, nnz=nnz, max_width=max_width, schedule=chosen)


def _thinned(entries: list[ScheduleEntry]) -> list[ScheduleEntry]:
    kept = list(entries)
    for entry in entries:
        rest = [other for other in kept if other is not entry]
        same = [e for e in entries if nearest(kept, e).schedule != nearest(rest, e).schedule] if rest else entries
        if not same:
            kept = rest
    return kept


def fitted_thirds(times: pd.DataFrame) -> bool:
    """Tell whether widths between the powers of two take less time, over formats that were timed in both ways."""
    logs = times.assign(schedule=times["schedule"].map(repr), log=np.log(times["time_us"]))
    ways = logs.pivot_table("log", ["row", "max_width", "gathered", "schedule"], "thirds", "last")
    if ways.shape[1] < 2:
        return False
    return float((ways[True] - ways[False]).dropna().groupby("row").mean().mean()) < 0


def curves_of(times: pd.DataFrame, gathered: bool, thirds: bool = False) -> list[Any]:
    """Give the least time of every widest bucket in one order of rows, by number of the row.

    Up to 16 wide buckets have no widths between the powers of two: these times count with thirds and without.
    """
    alike = (times["thirds"] == thirds) | (times["max_width"] <= THIRDS[0])
    chosen = times[(times["gathered"] == gathered) & alike].groupby("row")
    return [(number, one.groupby("max_width")["time_us"].min().to_dict()) for number, one in chosen]


def fitted_weights(rows: Sequence[ScheduleRow], times: pd.DataFrame, gathered: bool, thirds: bool = False) -> Weights:
    """Find the weights under which the cheapest widths take least time, one weight after the other over a grid."""
    curves = [
        (rows[number].counts(thirds), rows[number].width, curve)
        for number, curve in curves_of(times, gathered, thirds)
        if len(curve) > 1
    ]

    def regret(weights: Weights) -> float:
        regrets = [_width_regret(weighed(counted, width, weights)[0], curve) for counted, width, curve in curves]
        return float(np.mean(regrets)) if regrets else 0.0

    return min((_descend(start, regret) for start in _STARTS), key=regret)


def _descend(weights: Weights, regret: Callable[[Weights], float]) -> Weights:
    best = regret(weights)
    while True:
        before = best
        for name, values in _SPACE.items():
            for value in values:
                candidate = replace(weights, **{name: value})
                if (loss := regret(candidate)) < best - 1e-9:
                    weights, best = candidate, loss
        if best >= before - 1e-6:
            return weights


def _width_regret(prices: NDArray[np.float64], times: dict[int, float]) -> float:
    widest = int(np.flatnonzero(np.isfinite(prices))[-1])
    taken = min(times, key=lambda max_width: prices[min(max_width.bit_length() - 1, widest)])
    return float(np.log(times[taken] / min(times.values())))


def fitted_gathering(rows: Sequence[ScheduleRow], times: pd.DataFrame) -> Gathering | None:
    """Find the bounds from which on gathering rows takes least time; None where it never pays or was never tried."""
    ways = times.groupby(["row", "gathered"])["time_us"].agg(["min", "size"]).query(f"size >= {MANY}")["min"].unstack()
    if ways.shape[1] < 2 or (least := ways.dropna()).empty:
        return None
    own = [rows[int(number)] for number in least.index.to_numpy()]
    gains = np.clip(np.log((least[True] / least[False]).to_numpy()), -_CREDIBLE, _CREDIBLE)
    # J as `Gathering.asks` counts it
    widths = np.array([row.width * row.dtype.itemsize // DType.FLOAT32.itemsize for row in own])
    loads, shares = widths * [row.nnz for row in own], np.array([row.gathered_share / row.given_share for row in own])

    def total(rule: Gathering) -> float:
        taken = (widths >= rule.least_width) & (loads >= rule.least_loads) & (shares <= rule.most_share)
        return float((gains[taken] + _WORTH).sum())

    rules = [Gathering(*bounds, weights=_STARTS[0]) for bounds in product(_WIDTHS, _LOADS, _SHARES)]
    best = min(rules, key=total)
    return best if total(best) < 0 else None
