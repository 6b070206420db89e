"""Roofs of cases, the least time that launch, bytes and gathered rows take, and the share of a roof that is reached.

A roof is the launch plus the largest of the other times. Gathering reads a row of a dense operand out of L2 for every
non-zero. A kernel that finds rows in L1, shared memory or registers can pass the roof, so that shares are cut at 1, and
cases that pass are marked: means of cut shares do not tell such labels apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import log2, nan

import numpy as np
import pandas as pd

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import DType
from spmark.report.analysis.means import by_group, over_matrices
from spmark.report.analysis.statistics import floor_us

FROZEN_DEVICE = "nvidia-h200"
FROZEN_LAUNCH_US = 3.5
FROZEN_BYTES_PER_S = 4.255e12
FROZEN_GATHER_BYTES_PER_S = 8.5e12
"""The frozen roof, of an H200: launch with the first loads, copy bandwidth, and reading rows out of L2.

Shares of different days are compared, and a rate that is measured again would move them: these rates stay as they are.
"""
SPLIT_US = 6.0
"""Roof that divides the cases: under this roof the launch and the first loads decide, over this roof the bytes."""
SIDES = (f"over {SPLIT_US:g} µs", f"under {SPLIT_US:g} µs")
_FIRST_LOADS = 2
"""Loads that wait for each other in every kernel: an index, then the row that it names."""
_CASE = ["op", "dtype", "matrix", "width", "label", "implementation"]


class Bound(StrEnum):
    """A part of a roof; the largest of a case's times is the bound that holds."""

    LAUNCH = "launch"
    """The launch and the first loads."""
    BYTES = "compulsory bytes"
    FLOPS = "flops"
    GATHER = "L2 gather"
    BEYOND = "gather beyond L2"
    """The gathered operand does not fit into L2, so that rows are fetched from memory again."""


def frozen_times(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the frozen roof's times.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        Microseconds by `Bound`, row by row; NaN for every device but `FROZEN_DEVICE`, which has these rates.
    """
    times = {
        Bound.LAUNCH: pd.Series(FROZEN_LAUNCH_US, derived.index),
        Bound.BYTES: derived["compulsory_bytes"] / FROZEN_BYTES_PER_S * 1e6,
        Bound.GATHER: _gathered_bytes(derived) / FROZEN_GATHER_BYTES_PER_S * 1e6,
    }
    return pd.DataFrame(times).where(derived["device"] == FROZEN_DEVICE)


def measured_times(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the times by the rates that calibrating the records' own device has measured.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        Microseconds by `Bound`, row by row; NaN where the calibration has no such rate. Without a rate of gathering all
        are NaN: a roof without its largest part would be far below the time that a run needs.
    """
    specs = [facts.device if facts else None for facts in derived["facts"]]
    row_bytes = _gathered_columns(derived) * _itemsizes(derived)
    table_bytes = derived["num_cols"] * row_bytes
    gathers_us = list(map(_gather_us, specs, row_bytes, table_bytes, _gathered_bytes(derived)))
    times = {
        Bound.LAUNCH: list(map(_launch_us, specs)),
        Bound.BYTES: list(map(floor_us, derived["compulsory_bytes"], derived["copy_bytes_per_s"])),
        Bound.FLOPS: list(map(floor_us, derived["flops"], derived["flops_per_s"])),
        Bound.GATHER: [fitting for fitting, _ in gathers_us],
        Bound.BEYOND: [larger for _, larger in gathers_us],
    }
    frame = pd.DataFrame(times, derived.index).astype(np.float64)
    return frame.where(frame[[Bound.GATHER, Bound.BEYOND]].notna().any(axis=1))


def under_roof(derived: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """Give every case with its roof.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    times : DataFrame
        As `frozen_times` or `measured_times` gives it; NaN entries are left out of a roof.

    Returns
    -------
    DataFrame
        One row for each case that has a median and a roof: ``op, dtype, matrix, width, label, implementation``;
        ``side``, out of `SIDES`; ``roof_us``; ``bound``, the `Bound` that holds; ``median_us``; ``share``, roof over
        median, at most 1; ``passes``, whether the median is less than the roof.
    """
    roof_us = times[Bound.LAUNCH].fillna(0) + times.drop(columns=Bound.LAUNCH).max(axis=1)
    known = derived["median_us"].notna() & (roof_us > 0)
    rows, times, roof_us = derived[known], times[known], roof_us[known]
    cases = rows[_CASE].assign(
        side=np.where(roof_us > SPLIT_US, *SIDES),
        roof_us=roof_us,
        bound=times.fillna(-1).idxmax(axis=1).map(str) if len(times) else "",
        median_us=rows["median_us"],
        share=(roof_us / rows["median_us"]).clip(upper=1.0),
        passes=roof_us > rows["median_us"],
    )
    return cases.reset_index(drop=True)


def mean_shares(cases: pd.DataFrame) -> pd.DataFrame:
    """Give the geometric mean of the shares of `under_roof` by ``op, dtype, side`` and label.

    Returns
    -------
    DataFrame
        ``op, dtype, side, label, implementation``; ``roof_share`` with the ends of its interval over matrices, as
        `spmark.report.analysis.means.over_matrices` has it, up to 1, which no share exceeds; ``cases``.
    """
    keys = ["op", "dtype", "side", "label", "implementation"]
    columns = ["roof_share", "roof_share_low", "roof_share_high", "cases"]
    made = by_group(cases, keys, lambda part: over_matrices(part, "share").columns("roof_share") | {"cases": len(part)})
    made = made.reindex(columns=[*keys, *columns])
    return made.assign(roof_share_high=made["roof_share_high"].clip(upper=1.0))


def _itemsizes(derived: pd.DataFrame) -> pd.Series[int]:
    return derived["dtype"].map(lambda dtype: DType(dtype).itemsize).astype(int)  # without rows pandas keeps texts


def _gathered_bytes(derived: pd.DataFrame) -> pd.Series[float]:
    return derived["nnz"] * _gathered_columns(derived) * _itemsizes(derived)


def _gathered_columns(derived: pd.DataFrame) -> pd.Series[int]:
    return derived["width_in"].where(derived["width_in"] > 0, derived["width"])  # RGMS gathers rows of X


def _launch_us(spec: DeviceSpec | None) -> float:
    if spec is None or not spec.cold_launch_s:
        return nan
    return (spec.cold_launch_s + _FIRST_LOADS * spec.cold_load_s) * 1e6


def _gather_us(spec: DeviceSpec | None, row_bytes: float, table_bytes: float, gathered: float) -> tuple[float, float]:
    """Give the time of gathering from a table that fits into L2, and from a larger table; one of the two is NaN."""
    if spec is None or not spec.l2_gather_bytes_per_s:
        return nan, nan
    rate = _between(spec.l2_gather_bytes_per_s, row_bytes)
    if table_bytes <= spec.l2_bytes or not spec.table_gather_bytes_per_s:
        return floor_us(gathered, rate), nan
    by_table = spec.table_gather_bytes_per_s
    return nan, floor_us(gathered, rate * min(1.0, _between(by_table, table_bytes) / by_table[min(by_table)]))


def _between(rates: Mapping[int, float], at: float) -> float:
    """Interpolate over the logarithm of the size; beyond the ends the end's rate holds."""
    sizes = sorted(rates)
    return float(np.interp(log2(max(at, 1)), [log2(size) for size in sizes], [rates[size] for size in sizes]))
