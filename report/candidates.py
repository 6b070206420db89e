"""What searches saw of each config, beside the records of their cases: the side files ``candidates.jsonl``.

Only medians are kept: a sweep's side file holds tens of thousands of sample lists.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import nan
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from spmark.impls.core.plausible import read_candidates
from spmark.impls.core.record import CandidateRow
from spmark.impls.core.recordfile import row_files
from spmark.report.asset import CANDIDATES
from spmark.report.records import record_files

COLUMNS = ("case_id", "implementation_version", "environment", "candidate", "predicted", "seen_us")
"""Columns of `load_candidates`; ``candidate`` is the config, ``seen_us`` its median, NaN where it was only scored."""
OF_CASE = ("case_id", "implementation_version", "environment")
"""Columns that tell the case of a candidate."""
_OF = attrgetter(*OF_CASE)
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


def load_candidates(paths: Sequence[Path], records: pd.DataFrame | None = None) -> pd.DataFrame:
    """Read the candidates beside every record file among and under ``paths``.

    Parameters
    ----------
    paths : sequence of Path
        As `spmark.report.records.load_records` takes them.
    records : DataFrame, optional
        With the columns `OF_CASE`. Only candidates that `measured` can use are then read:
        those of the records' cases that were timed.

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
    folders = dict.fromkeys(file.parent for file in record_files(paths))
    names, parts = list(OF_CASE), [_of_folder(folder, timed=records is not None) for folder in folders]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
    if records is not None:
        known = pd.MultiIndex.from_frame(records[names])
        frame = frame[(frame["seen_us"] > 0) & pd.MultiIndex.from_frame(frame[names]).isin(known)]
    older = frame[names].assign(config=frame["candidate"].map(_identity)).duplicated(keep="last")
    return frame[~older].reset_index(drop=True)


def _of_folder(folder: Path, *, timed: bool) -> pd.DataFrame:
    rows = [
        (*_OF(row), row.config, row.predicted, median(row.samples_us) if row.samples_us else nan)
        for row in _beside(folder, timed=timed)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"predicted": float, "seen_us": float})


def _identity(config: Mapping[str, Any]) -> Hashable:
    """Give what equal configs share."""
    try:
        return frozenset(config.items())
    except TypeError:  # a value holds further values
        return json.dumps(config, sort_keys=True, default=str)


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
