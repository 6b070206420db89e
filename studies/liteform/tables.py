"""Measured labels as a table: which format was fastest for a matrix and width, and in how many partitions.

Labels come from the authors' published CSV (a V100), or from rows of `spmark.studies.liteform.labels`. Beside the table
stand the ways to split it, and what wrong predictions cost.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from math import inf, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.features import PARTITIONS, SELECTION, Features
from spmark.impls.tuning.race import ConfigTime
from spmark.studies.liteform.labels import FIXED, MatrixLabels

SPEEDUP = 1.1
"""Least speed-up over the fixed formats with which CELL counts as the winner (section 5.1)."""
_PUBLISHED = {
    "num_rows": "num_rows",
    "num_cols": "num_cols",
    "nnz": "nnz",
    "avg_length": "avg_nnz_per_row",
    "min_length": "min_nnz_per_row",
    "max_length": "max_nnz_per_row",
    "std_length": "std_dev_nnz_per_row",
    "width": "K",
    "partitions": "best_num_partitions",
    "max_width": "best_max_bucket_width",
    "cell_us": "exe_time_hyb(ms)",
    "csr_us": "exe_time_naive(ms)",
    "speedup": "speed_to_naive",
    "tuning_s": "autotuning_time(s)",
}


@dataclass(frozen=True, eq=False)
class LabelTable:
    """One row for each matrix and width; float64 where nothing else is said, NaN or infinite where nothing ran."""

    matrix: NDArray[Any]
    """(n,) names; rows of one name are one matrix, or one matrix in one dtype, which then follows a blank."""
    num_rows: NDArray[np.float64]
    num_cols: NDArray[np.float64]
    nnz: NDArray[np.float64]
    avg_length: NDArray[np.float64]
    min_length: NDArray[np.float64]
    max_length: NDArray[np.float64]
    std_length: NDArray[np.float64]
    width: NDArray[np.float64]
    """J."""
    partitions: NDArray[np.float64]
    """Column partitions of the fastest config."""
    max_width: NDArray[np.float64]
    """Widest bucket of that config."""
    cell_us: NDArray[np.float64]
    """Time of that config."""
    csr_us: NDArray[np.float64]
    """Time of the fixed format that the config is compared with."""
    speedup: NDArray[np.float64]
    """Speed-up of the fastest config over the fixed format."""
    tuning_s: NDArray[np.float64]
    """Seconds spent to find that config."""

    @property
    def size(self) -> int:
        """Rows: n."""
        return int(self.width.size)

    @property
    def wins(self) -> NDArray[np.bool_]:
        """(n,) whether the speed-up is at least `SPEEDUP`; False where a measurement is missing."""
        return np.nan_to_num(self.speedup, nan=0.0) >= SPEEDUP

    @property
    def faster(self) -> NDArray[np.bool_]:
        """(n,) whether CELL is not slower at all; False where a measurement is missing."""
        return np.nan_to_num(self.speedup, nan=0.0) >= 1

    def take(self, index: NDArray[Any]) -> LabelTable:
        """Give some rows."""
        return LabelTable(*(getattr(self, field.name)[index] for field in fields(self)))

    def selection(self, names: Sequence[str] = SELECTION) -> NDArray[np.float64]:
        """Give (n, 7) features in the order of `SELECTION`, or (n, 8) in that of `SELECTION_BY_WIDTH`."""
        return np.column_stack([getattr(self, name) for name in names])

    def partition_features(self) -> NDArray[np.float64]:
        """Give (n, 8) features in the order of `PARTITIONS`."""
        densities = [
            getattr(self, name.replace("density", "length")) / self.num_cols
            for name in PARTITIONS
            if name.endswith("density")
        ]
        return np.column_stack([self.num_rows, self.num_cols, self.nnz, *densities, self.width])

    def one_per_matrix(self) -> LabelTable:
        """Keep the first row of every matrix: J = 32 in the published file, which the selection is trained on."""
        _, first = np.unique(self.matrix, return_index=True)
        return self.take(np.sort(first))

    def where_cell_wins(self) -> LabelTable:
        """Keep the rows in which CELL wins: the number of partitions is trained on them."""
        return self.take(np.flatnonzero(self.wins))


def read_published(text: str, where: str) -> LabelTable:
    """Read the authors' CSV.

    Parameters
    ----------
    text : str
        Content of the file.
    where : str
        Named in errors.

    Raises
    ------
    DatasetError
        A column is missing, or a cell is not a number; the message names the line.
    """
    rows = csv.DictReader(io.StringIO(text))
    missing = {"name", *_PUBLISHED.values()} - set(rows.fieldnames or ())
    if missing:
        raise DatasetError(f"{where}:1: expected the published columns, missing {', '.join(sorted(missing))}")
    names: list[str] = []
    columns: dict[str, list[float]] = {field: [] for field in _PUBLISHED}
    for row in rows:
        names.append(row["name"])
        for field, column in _PUBLISHED.items():
            try:
                columns[field].append(float(row[column]))
            except (TypeError, ValueError) as error:
                raise DatasetError(
                    f"{where}:{rows.line_num}: expected a number in {column}, found {row[column]!r}"
                ) from error
    if not names:
        raise DatasetError(f"{where}: expected labels below the header, found none")
    arrays = {field: np.array(values) for field, values in columns.items()}
    arrays["cell_us"], arrays["csr_us"] = arrays["cell_us"] * 1e3, arrays["csr_us"] * 1e3
    return LabelTable(np.array(names), **arrays)


def table_of(rows: Iterable[MatrixLabels]) -> LabelTable:
    """Give labels as a table, which compares CELL with the fastest of the fixed formats.

    Parameters
    ----------
    rows : iterable of MatrixLabels

    Returns
    -------
    LabelTable
        A row for each matrix, dtype and J at which CELL and CSR have times; named ``source/matrix dtype``.

    Raises
    ------
    DatasetError
        No row has times.
    """
    lines = [line for row in rows for width in row.widths if (line := _line(row, width)) is not None]
    if not lines:
        raise DatasetError("expected labels with times of CELL and CSR, found none")
    names, numbers = zip(*lines, strict=True)
    return LabelTable(np.array(names), *np.array(numbers, np.float64).T)


def _line(row: MatrixLabels, width: int) -> tuple[str, tuple[float, ...]] | None:
    """Give the fields of `LabelTable` for one J, in their order; None where CELL or CSR has no time."""
    times = [(ConfigTime.of({}, t.samples_us[width]), t) for t in row.tried if t.samples_us.get(width)]
    fixed = [float(np.median(row.fixed_us[f][width])) for f in FIXED if row.fixed_us.get(f.value, {}).get(width)]
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


def drawn_split(samples: int, rng: np.random.Generator, share: float = 0.8) -> tuple[NDArray[Any], NDArray[Any]]:
    """Split as the public code does: test rows are drawn with replacement, and a row that is drawn twice counts once.

    Returns
    -------
    train, test : (n,), (m,) int64
        Positions in order; fewer than ``1 - share`` are tests: 406 of 2,279 where the paper speaks of a fifth.
    """
    draws = samples - min(int(samples * share), samples - 1)
    test = np.unique(rng.integers(0, samples, draws))
    return np.setdiff1d(np.arange(samples), test), test


def disjoint_split(
    matrix: NDArray[Any], rng: np.random.Generator, share: float = 0.8
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Split by matrix: all widths and dtypes of one are on the same side, and ``share`` of the matrices train.

    Parameters
    ----------
    matrix : (n,) str
        `LabelTable.matrix`; the word behind a blank is a dtype and does not tell matrices apart.
    rng : Generator
    share : float

    Returns
    -------
    train, test : (n,), (m,) int64
        Positions in order.
    """
    names, of_row = np.unique([str(name).partition(" ")[0] for name in matrix], return_inverse=True)
    trained = np.zeros(names.size, np.bool_)
    trained[rng.permutation(names.size)[: max(1, int(names.size * share))]] = True
    on_train = trained[of_row]
    return np.flatnonzero(on_train), np.flatnonzero(~on_train)


def selection_regret(rows: LabelTable, cell: NDArray[np.bool_]) -> float:
    """Give how much longer the chosen formats take than the faster of the two: geometric mean of the ratios, minus 1.

    Parameters
    ----------
    rows : LabelTable
        n rows; those in which one of the formats has no time are left out.
    cell : (n,) bool
        Where CELL was chosen.
    """
    both = np.isfinite(rows.cell_us) & np.isfinite(rows.csr_us)
    chosen = np.where(cell, rows.cell_us, rows.csr_us)[both]
    best = np.minimum(rows.cell_us, rows.csr_us)[both]
    return float(np.exp(np.mean(np.log(chosen / best))) - 1)


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
