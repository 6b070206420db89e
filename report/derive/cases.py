"""Columns that follow from the facts of one device's records: medians, speed-ups, roofline shares, build costs.

A speed-up is a ratio within one run: a row's own interleaved baseline samples are used where they are of the chosen
baseline, and only else the baseline's own record of the same problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from math import isnan, nan
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.load import Load
from spmark.impls.core.record import Status
from spmark.report.derive.statistics import NOTHING, break_even, floor_us, median_interval, ratio_interval

WIDE = 0.02
"""Relative half-width from which a median's interval is flagged: twice what sampling aims at."""
WIDE_SPEEDUP = 0.10
"""Relative half-width from which the interval of a case's speed-up is wide: runs of one code may differ by as much."""
WIDE_MARK = "~"
"""Stands over a bar, and behind a number, whose cases have wide intervals."""
CHOOSING_PHASES = ("features", "select", "search", "convert")
"""What a plan spends on this matrix. Compiled kernels are kept on disk for the next one, and every plan uploads."""
SPENT_PHASES = (*CHOOSING_PHASES, "compile")
"""What a search costs until its first run: uploading is left out, since every plan uploads."""
PROBLEM = ("op", "dtype", "matrix", "width", "seed")
"""Columns that rows must share to be compared."""
Row = Mapping[Hashable, Any]
Key = tuple[Any, ...]


def choose_baseline(frame: pd.DataFrame, wanted: str | None = None) -> str | None:
    """Give the baseline of one device's records.

    Returns
    -------
    str or None
        ``wanted`` where records are of it or name it; else the implementation that most rows name as their baseline
        (the first by name of several); None where no row names any.
    """
    named = Counter(name for name in frame["baseline_implementation"] if name)
    if wanted and (wanted in named or _is_baseline(frame, wanted).any()):
        return wanted
    return min(named, key=lambda name: (-named[name], name), default=None)


def baseline_names(frame: pd.DataFrame) -> list[str]:
    """List what can be chosen as a baseline: labels, implementations and baselines that rows name."""
    names = set(frame["label"]) | set(frame["implementation"]) | set(frame["baseline_implementation"])
    return sorted(names - {""})


def derive(frame: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """Add derived columns to the records of one device.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.load.records.current` gives it, of one device.
    baseline : str or None
        An implementation, or the label of one config; None leaves speed-ups and break-even counts unknown.

    Returns
    -------
    DataFrame
        The frame with ``matrix_kind`` also where a case was refused before its matrix was loaded, if another row of the
        matrix has it; ``is_baseline``; ``median_us``, ``speedup`` and their ``_low`` and ``_high``; ``speedup_from``
        (``interleaved``, ``record``, ``itself`` or empty), ``baseline_us``; ``warm_us``, ``graph_us``, ``samples``;
        ``gflops_per_s``; ``bytes_share`` and ``flops_share`` (floor over median) and the larger, ``roofline_share``;
        ``wide``, whether the speed-up's interval reaches more than `WIDE_SPEEDUP` to either side; ``taken_cores``, what
        other processes took of the host's cores; ``padding``; ``build_s``, ``choosing_s``, ``break_even_runs``,
        ``break_even_runs_with_compile``; ``flags``.
        Unknown numbers are NaN, and so is every time of a case that is not ok.
    """
    is_baseline = _is_baseline(frame, baseline) if baseline else pd.Series(False, index=frame.index)
    own = {problem_key(row): row for row in frame[is_baseline & _timed(frame)].to_dict("records")}
    derived = [
        _derived(row, baseline, own.get(problem_key(row)), itself)
        for row, itself in zip(frame.to_dict("records"), is_baseline, strict=True)
    ]
    columns = list(_derived(_NO_ROW, None, None, False))
    return frame.assign(is_baseline=is_baseline, matrix_kind=_known_kinds(frame)).join(
        pd.DataFrame(derived, index=frame.index, columns=columns)
    )


def _known_kinds(frame: pd.DataFrame) -> pd.Series[str]:
    known = frame[frame["matrix_kind"] != ""].drop_duplicates("matrix").set_index("matrix")["matrix_kind"]
    return frame["matrix_kind"].where(frame["matrix_kind"] != "", frame["matrix"].map(known).astype(object).fillna(""))


def problem_key(row: Row) -> Key:
    """Give the values of `PROBLEM`."""
    return tuple(row[name] for name in PROBLEM)


def _is_baseline(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    default = frame["requested"].map(len) == 0
    return (frame["label"] == name) | ((frame["implementation"] == name) & default)


def _timed(frame: pd.DataFrame) -> pd.Series[bool]:
    return (frame["status"] == Status.OK.value) & (frame["samples_us"].map(len) > 0)


def _derived(row: Row, baseline: str | None, own: Row | None, itself: bool) -> dict[str, Any]:
    samples = row["samples_us"] if row["status"] == Status.OK.value else np.empty(0)
    median = median_interval(samples)
    against, source = _baseline_samples(row, baseline, own, itself) if samples.size else (np.empty(0), "")
    speedup = NOTHING if itself else ratio_interval(against, samples)
    baseline_us = median_interval(against).value
    bytes_share = floor_us(row["compulsory_bytes"], row["copy_bytes_per_s"]) / median.value
    flops_share = floor_us(row["flops"], row["flops_per_s"]) / median.value
    build, paid = row["phases_s"], own["phases_s"] if own else {}
    choosing_s, compile_s = _choosing_s(build), build.get("compile", 0.0)
    # The baseline's search for its fastest variant is not held against it: that would make every rival pay off sooner.
    base_choosing_s = _choosing_s(paid) - paid.get("search", 0.0)
    base_compile_s = paid.get("compile", 0.0)
    run_us = nan if itself else median.value
    return {
        "samples": int(samples.size),
        "median_us": median.value,
        "median_us_low": median.low,
        "median_us_high": median.high,
        "warm_us": median_interval(row["warm_samples_us"]).value,
        "graph_us": median_interval(row["graph_samples_us"]).value,
        "baseline_us": baseline_us,
        "speedup": 1.0 if itself and samples.size else speedup.value,
        "speedup_low": speedup.low,
        "speedup_high": speedup.high,
        "speedup_from": source,
        "wide": not itself and speedup.half_width > WIDE_SPEEDUP,
        "taken_cores": _load(row).taken_cores,
        "gflops_per_s": row["flops"] / median.value * 1e-3,
        "bytes_share": bytes_share,
        "flops_share": flops_share,
        "roofline_share": float(np.fmax(bytes_share, flops_share)),
        "padding": row["stored"] / row["nnz"] - 1 if row["stored"] and row["nnz"] > 0 else nan,
        "build_s": sum(build.values()) if build else nan,
        "choosing_s": choosing_s if build else nan,
        "break_even_runs": break_even(choosing_s, run_us, base_choosing_s, baseline_us),
        "break_even_runs_with_compile": break_even(
            choosing_s + compile_s, run_us, base_choosing_s + base_compile_s, baseline_us
        ),
        "flags": _flags(row, median.half_width),
    }


def _baseline_samples(row: Row, baseline: str | None, own: Row | None, itself: bool) -> tuple[Any, str]:
    if itself:
        return row["samples_us"], "itself"
    if baseline and row["baseline_implementation"] == baseline and row["baseline_samples_us"].size:
        return row["baseline_samples_us"], "interleaved"
    return (own["samples_us"], "record") if own else (np.empty(0), "")


def _load(row: Row) -> Load:
    """Give what is on record of other processes' work."""
    cores, free = row["facts"].cores if row["facts"] else 0, row["free_cores"]
    return Load(cores, None if free is None or isnan(free) or not cores else float(free))


def _choosing_s(phases_s: Mapping[str, float]) -> float:
    return sum(phases_s.get(phase, 0.0) for phase in CHOOSING_PHASES)


def _flags(row: Row, half_width: float) -> str:
    flags = [f"throttled ({', '.join(row['throttled'])})"] if row["throttled"] else []
    if half_width > WIDE:
        flags.append(f"wide interval (±{half_width:.1%})")
    if (load := _load(row)).busy:
        flags.append(f"busy machine ({load})")
    return "; ".join(flags)


_NO_ROW: Row = {
    "status": "", "throttled": [], "phases_s": {}, "stored": 0, "nnz": nan, "flops": nan, "compulsory_bytes": nan,
    "copy_bytes_per_s": nan, "flops_per_s": nan, "warm_samples_us": [], "graph_samples_us": [],
    "facts": None, "free_cores": None,
}  # fmt: skip
