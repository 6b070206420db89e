"""What searches saw of each config, beside the records of their cases: the side files ``candidates.jsonl``.

Only medians are kept: a sweep's side file holds tens of thousands of sample lists.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from itertools import count, groupby
from math import nan
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.errors import RecordError
from spmark.impls.core.guard import reading
from spmark.impls.core.plausible import read_candidates
from spmark.impls.core.record import CandidateRow
from spmark.impls.core.recordfile import row_files
from spmark.report.asset import CANDIDATES
from spmark.report.parallel import each
from spmark.report.records import record_files, sweep_name

COLUMNS = ("case_id", "implementation_version", "environment", "candidate", "predicted", "seen_us")
"""Columns of `load_candidates`; ``candidate`` is the config, ``seen_us`` its median, NaN where it was only scored."""
OF_CASE = ("case_id", "implementation_version", "environment")
"""Columns that tell the case of a candidate."""
_TOLD = ["op", "dtype", "matrix", "matrix_kind", "nnz", "width", "seed", "label", "implementation", "config"]


def read_seen(paths: Sequence[Path]) -> Iterator[CandidateRow]:
    """Read what searches saw beside every record file among and under ``paths``, oldest first.

    Raises
    ------
    RecordError
        A path is missing, a file cannot be read, or a complete line is not a candidate.
    """
    for folder in dict.fromkeys(file.parent for file in record_files(paths)):
        yield from _beside(folder)


def _beside(folder: Path, *, timed: bool = False) -> Iterator[CandidateRow]:
    for side in row_files(folder, CANDIDATES):
        yield from read_candidates(side, timed=timed)


def candidate_digests(paths: Sequence[Path], devices: Iterable[str]) -> dict[tuple[str, str], str]:
    """Give a digest of the files of candidates beside the records of each device and sweep.

    Raises
    ------
    RecordError
        A path is missing, or a file cannot be read.
    """
    found: dict[tuple[str, str], Any] = {}
    names = list(devices)
    for file in record_files(paths):
        content = b""
        for side in row_files(file.parent, CANDIDATES):
            with reading(side, "a file of candidates", RecordError):
                content += hashlib.sha256(side.read_bytes()).digest()
        for key in {(device, sweep_name(file, device)) for device in names}:
            found.setdefault(key, hashlib.sha256()).update(content)
    return {key: digest.hexdigest() for key, digest in found.items()}


def load_candidates(
    paths: Sequence[Path], records: pd.DataFrame | None = None, pool: Executor | None = None
) -> pd.DataFrame:
    """Read the candidates beside every record file among and under ``paths``.

    Parameters
    ----------
    paths : sequence of Path
        As `spmark.report.records.load_records` takes them.
    records : DataFrame, optional
        With the columns `OF_CASE`. Only candidates that `measured` can use are then read:
        those of the records' cases that were timed.
    pool : Executor, optional
        Processes that read a folder each.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row for each config of each case; of a config that stands there twice the newer row counts. Empty
        where no search kept its candidates.

    Raises
    ------
    RecordError
        A path is missing, a file cannot be read, or a complete line is not a candidate.
    """
    return begin_candidates(paths, records, pool)()


def begin_candidates(
    paths: Sequence[Path], records: pd.DataFrame | None = None, pool: Executor | None = None
) -> Callable[[], pd.DataFrame]:
    """Give what reads candidates as `load_candidates` does once it is called; a pool begins at once.

    Raises
    ------
    RecordError
        A path is missing.
    """
    folders = list(dict.fromkeys(file.parent for file in record_files(paths)))
    sizes = [sum(side.stat().st_size for side in row_files(folder, CANDIDATES)) for folder in folders]
    frames = each([partial(_of_folder, folder, timed=records is not None) for folder in folders], sizes, pool)
    return partial(_of_all, frames, records)


def _of_folder(folder: Path, *, timed: bool) -> pd.DataFrame:
    cases: dict[tuple[str, ...], dict[Hashable, tuple[int, Any, float | None, float]]] = {}
    place = count()
    with _without_collecting():
        for case, of_case in groupby(_beside(folder, timed=timed), attrgetter(*OF_CASE)):
            newest = cases.setdefault(case, {})
            for row in of_case:
                seen_us = median(row.samples_us) if row.samples_us else nan
                newest[_identity(row.config)] = next(place), row.config, row.predicted, seen_us
        rows = [(seen[0], *case, *seen[1:]) for case, newest in cases.items() for seen in newest.values()]
    frame = pd.DataFrame(rows, columns=["place", *COLUMNS]).astype({"predicted": float, "seen_us": float})
    return frame.sort_values("place", ignore_index=True).drop(columns="place")


def _of_all(frames: Iterator[pd.DataFrame], records: pd.DataFrame | None) -> pd.DataFrame:
    """Put the candidates of all folders together, in the order of folders."""
    names, parts = list(OF_CASE), list(frames)
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
    if records is not None:
        known = pd.MultiIndex.from_frame(records[names])
        frame = frame[(frame["seen_us"] > 0) & pd.MultiIndex.from_frame(frame[names]).isin(known)]
    cases = pd.concat([frame[names][:0], *(part[names].drop_duplicates() for part in parts)])
    shared = pd.MultiIndex.from_frame(cases[cases.duplicated()])
    if len(shared):
        of_shared = frame[pd.MultiIndex.from_frame(frame[names]).isin(shared)]
        older = of_shared[names].assign(config=of_shared["candidate"].map(_identity)).duplicated(keep="last")
        frame = frame.drop(index=older.index[older])
    return frame.reset_index(drop=True)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Hold back the collector of cycles, which would walk over all rows that were read, time and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _identity(config: Mapping[str, Any]) -> Hashable:
    """Give what equal configs share."""
    try:
        return frozenset(config.items())
    except TypeError:  # a value holds further values
        return json.dumps(config, sort_keys=True, default=str)


def measured_each(sweeps: Sequence[pd.DataFrame], candidates: pd.DataFrame) -> list[pd.DataFrame]:
    """Give `measured` of several frames of cases at once: candidates are many, and are gone through once.

    Parameters
    ----------
    sweeps : sequence of DataFrame
        Each as `spmark.report.analysis.cases.derive` gives it; a case may be in several.
    candidates : DataFrame
        As `load_candidates` gives it.
    """
    keys = pd.MultiIndex.from_frame(candidates[list(OF_CASE)])
    known = keys.unique()
    codes = known.get_indexer(keys)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(known) + 1))
    parts = []
    for derived in sweeps:
        own = known.get_indexer(pd.MultiIndex.from_frame(derived[list(OF_CASE)]).unique())
        rows = [order[starts[code] : starts[code + 1]] for code in own if code >= 0]
        place = np.sort(np.concatenate(rows)) if rows else np.empty(0, np.intp)
        parts.append(measured(derived, candidates.take(place)))
    return parts


def measured(derived: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Give the candidates that were timed, with columns of their cases.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    candidates : DataFrame
        As `load_candidates` gives it.

    Returns
    -------
    DataFrame
        `COLUMNS`, and ``op, dtype, matrix, matrix_kind, nnz, width, seed, label, implementation``, and ``config``, what
        the plan of the case chose; cases without a result are left out. So are cases that stand for several patterns,
        as where a file was replaced by another of its name: a candidate does not say of which pattern it is.
    """
    timed = candidates[candidates["seen_us"] > 0]
    cases = derived.loc[derived["median_us"].notna(), [*OF_CASE, *_TOLD]].drop_duplicates(list(OF_CASE), keep=False)
    return timed.merge(cases, on=list(OF_CASE), validate="many_to_one")
