"""Files of measured labels as a table to train on, and what predicted numbers of partitions cost on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from math import inf, log2
from pathlib import Path

import numpy as np

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import DType
from spmark.impls.core.recordfile import read_rows
from spmark.impls.liteform.compose import Form
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.labelled import Labels
from spmark.impls.liteform.labels import LabelRow
from spmark.impls.tuning.race import Timed


def partition_regret(rows: Iterable[LabelRow], predict: Callable[[Features, int], int]) -> float:
    """Give what predicted numbers of partitions cost in time, each with its own best bucket width.

    Parameters
    ----------
    rows : iterable of LabelRow
    predict : callable
        Partitions for features and J; where that number was not tried, the nearest that was is taken.

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


def read_labels(paths: Sequence[Path]) -> list[LabelRow]:
    """Read files of labels of one device, every matrix and dtype once however the files were sharded.

    Where there are several rows of one, the one in which every config was tried is taken, else one that is complete,
    else the last.

    Raises
    ------
    DatasetError
        The files hold no labels, or those of several devices.
    RecordError
        A line is no label.
    """
    found: dict[tuple[str, str, DType], LabelRow] = {}
    for row in (row for path in paths for row in read_rows(path, LabelRow)):
        key = row.device, row.matrix, row.dtype
        held = found.get(key)
        if held is None or (row.exhaustive, row.complete) >= (held.exhaustive, held.complete):
            found[key] = row
    devices = sorted({row.device for row in found.values()})
    if len(devices) != 1:
        where = ", ".join(map(str, paths))
        raise DatasetError(f"{where}: expected labels of one device, found {', '.join(devices) or 'none'}")
    return list(found.values())


def table_of(rows: Iterable[LabelRow], both: bool = True) -> Labels:
    """Give labels as a table.

    Parameters
    ----------
    rows : iterable of LabelRow
    both : bool
        Compare CELL with the faster of CSR and BSR, as the paper says, or with CSR alone, as its public code does.

    Returns
    -------
    Labels
        A row for each matrix, dtype and J at which CELL and CSR have times; named ``source/matrix dtype``.

    Raises
    ------
    DatasetError
        No row has times.
    """
    found = [line for row in rows for width in row.widths if (line := _line(row, width, both)) is not None]
    if not found:
        raise DatasetError("expected labels with times of CELL and CSR, found none")
    names, numbers = zip(*found, strict=True)
    return Labels(np.array(names), *np.array(numbers, np.float64).T)


def _line(row: LabelRow, width: int, both: bool) -> tuple[str, tuple[float, ...]] | None:
    """Give the fields of `Labels` for one J, in their order; None where CELL or CSR has no time."""
    times = [(Timed.of({}, t.samples_us[width]), t) for t in row.tried if t.samples_us.get(width)]
    forms = (Form.CSR, Form.BSR) if both else (Form.CSR,)
    fixed = [float(np.median(row.fixed_us[f][width])) for f in forms if row.fixed_us.get(f.value, {}).get(width)]
    if not times or not row.fixed_us.get(Form.CSR.value, {}).get(width):
        return None
    fastest = min((timed for timed, _ in times), key=lambda timed: timed.us)
    # Of configs that noise cannot tell apart the simplest is meant to be learned.
    tied = [pair for pair in times if pair[0].ties(fastest)]
    best = min(tied, key=lambda pair: (pair[1].partitions, pair[0].us))[1]
    sizes = ("num_rows", "num_cols", "nnz", "avg_length", "min_length", "max_length", "std_length")
    features = tuple(row.features[name] for name in sizes)
    chosen = (width, best.partitions, best.max_width, fastest.us, min(fixed), min(fixed) / fastest.us, row.spent_s)
    return f"{row.matrix} {row.dtype}", (*features, *chosen)
