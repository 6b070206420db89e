"""Files of measured labels as a table to train on, and the cost of predicted numbers of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from math import inf, log2
from pathlib import Path

import numpy as np

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import DType
from spmark.impls.core.recordfile import read_rows
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.features import Features
from spmark.impls.tuning.race import ConfigTime
from spmark.studies.liteform.labelled import LabelTable
from spmark.studies.liteform.labels import FIXED, MatrixLabels
from spmark.studies.rows import one_device


def partition_regret(rows: Iterable[MatrixLabels], predict: Callable[[Features, int], int]) -> float:
    """Give the loss of time by predicted numbers of partitions, each with its own best bucket width.

    Parameters
    ----------
    rows : iterable of MatrixLabels
    predict : callable
        Partitions for features and J; where that number was not tried, the nearest tried number is taken.

    Returns
    -------
    float
        Geometric mean over all matrices and J of the time over that of the best number, minus 1; NaN without times.
    """
    logs = []
    for row in rows:
        sizes = {name: row.features[name] for name in (field.name for field in fields(Features))}
        for width in row.widths:
            best: dict[int, float] = {}
            for tried in row.tried:
                if tried.samples_us.get(width):
                    time_us = float(np.median(tried.samples_us[width]))
                    best[tried.partitions] = min(time_us, best.get(tried.partitions, inf))
            if best:
                wanted = predict(Features(**sizes), width)  # type: ignore[arg-type]
                taken = min(best, key=lambda partitions: abs(log2(partitions / wanted)))
                logs.append(log2(best[taken] / min(best.values())))
    return float(2 ** np.mean(logs) - 1) if logs else float("nan")


def read_labels(paths: Sequence[Path]) -> list[MatrixLabels]:
    """Read files of labels of one device, every matrix and dtype once however the files were sharded.

    Of several rows of one matrix and dtype, the row in which every config was tried is taken, else a complete row, else
    the last row.

    Raises
    ------
    DatasetError
        The files hold no labels, or those of several devices.
    RecordError
        A line is not a label.
    """
    best: dict[tuple[str, str, DType], MatrixLabels] = {}
    for row in (row for path in paths for row in read_rows(path, MatrixLabels)):
        key = row.device, row.matrix, row.dtype
        other = best.get(key)
        if other is None or (row.exhaustive, row.complete) >= (other.exhaustive, other.complete):
            best[key] = row
    one_device((row.device for row in best.values()), f"{', '.join(map(str, paths))}: expected labels")
    return list(best.values())


def table_of(rows: Iterable[MatrixLabels], both: bool = True) -> LabelTable:
    """Give labels as a table.

    Parameters
    ----------
    rows : iterable of MatrixLabels
    both : bool
        Compare CELL with the fastest of the fixed formats, as the paper says, or with GE-SpMM's CSR alone, as the
        public code does.

    Returns
    -------
    LabelTable
        A row for each matrix, dtype and J at which CELL and CSR have times; named ``source/matrix dtype``.

    Raises
    ------
    DatasetError
        No row has times.
    """
    lines = [line for row in rows for width in row.widths if (line := _line(row, width, both)) is not None]
    if not lines:
        raise DatasetError("expected labels with times of CELL and CSR, found none")
    names, numbers = zip(*lines, strict=True)
    return LabelTable(np.array(names), *np.array(numbers, np.float64).T)


def _line(row: MatrixLabels, width: int, both: bool) -> tuple[str, tuple[float, ...]] | None:
    """Give the fields of `LabelTable` for one J, in their order; None where CELL or CSR has no time."""
    times = [(ConfigTime.of({}, t.samples_us[width]), t) for t in row.tried if t.samples_us.get(width)]
    forms = FIXED if both else (StoredAs.CSR,)
    fixed = [float(np.median(row.fixed_us[f][width])) for f in forms if row.fixed_us.get(f.value, {}).get(width)]
    if not times or not row.fixed_us.get(StoredAs.CSR.value, {}).get(width):
        return None
    fastest = min((timed for timed, _ in times), key=lambda timed: timed.us)
    # Of configs that noise cannot tell apart the label is the simplest, since that is what should be learned.
    tied = [pair for pair in times if pair[0].ties(fastest)]
    best = min(tied, key=lambda pair: (pair[1].partitions, pair[0].us))[1]
    sizes = ("num_rows", "num_cols", "nnz", "avg_length", "min_length", "max_length", "std_length")
    features = tuple(row.features[name] for name in sizes)
    chosen = (width, best.partitions, best.max_width, fastest.us, min(fixed), min(fixed) / fastest.us, row.spent_s)
    return f"{row.matrix} {row.dtype}", (*features, *chosen)
