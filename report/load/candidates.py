"""What searches saw of each config, beside the records of their cases: the side files ``candidates.jsonl``.

Only medians are kept: a sweep's side file holds tens of thousands of sample lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path

import numpy as np
import pandas as pd

from spmark.impls.core.plausible import read_candidates
from spmark.impls.core.record import CandidateRow
from spmark.report.load.records import record_files

COLUMNS = ("case_id", "implementation_version", "environment", "candidate", "predicted", "seen_us")
"""Columns of `load_candidates`; ``candidate`` is the config, ``seen_us`` its median, NaN where it was only scored."""
_OF_CASE = ["case_id", "implementation_version", "environment"]
_TOLD = ["op", "dtype", "matrix", "matrix_kind", "nnz", "width", "seed", "label", "implementation", "config"]


def read_seen(paths: Sequence[Path]) -> Iterator[CandidateRow]:
    """Read what searches saw beside every record file among and under ``paths``, oldest first.

    Raises
    ------
    RecordError
        A path is missing, a file cannot be read, or a complete line is not a candidate.
    """
    for folder in dict.fromkeys(file.parent for file in record_files(paths)):
        for side in sorted(folder.glob("candidates.jsonl*")):
            yield from read_candidates(side)


def load_candidates(paths: Sequence[Path]) -> pd.DataFrame:
    """Read the candidates beside every record file among and under ``paths``.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row for each config of each case; of a case that was searched again the newer row counts. Empty
        where no search kept its candidates.

    Raises
    ------
    RecordError
        A path is missing, a file cannot be read, or a complete line is not a candidate.
    """
    rows = [
        (row.case_id, row.implementation_version, row.environment, row.config, row.predicted, _median(row.samples_us))
        for row in read_seen(paths)
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"predicted": float, "seen_us": float})
    text = frame["candidate"].map(lambda config: json.dumps(config, sort_keys=True, default=str))
    return frame[~frame[_OF_CASE].assign(text=text).duplicated(keep="last")].reset_index(drop=True)


def measured(derived: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Give the candidates that were timed, with columns of their cases.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it.
    candidates : DataFrame
        As `load_candidates` gives it.

    Returns
    -------
    DataFrame
        `COLUMNS`, and ``op, dtype, matrix, matrix_kind, nnz, width, seed, label, implementation``, and ``config``, what
        the plan of the case chose; cases without a result are left out.
    """
    timed = candidates[candidates["seen_us"] > 0]
    cases = derived.loc[derived["median_us"].notna(), [*_OF_CASE, *_TOLD]]
    return timed.merge(cases, on=_OF_CASE, validate="many_to_one")


def _median(samples_us: Sequence[float]) -> float:
    return float(np.median(samples_us)) if samples_us else nan
