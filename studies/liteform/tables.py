"""Measured labels as a table: which format was fastest for a matrix and width, and in how many partitions.

Labels come from the authors' published CSV (a V100), or from rows of `spmark.studies.liteform.labels`. Beside the table
stand the ways to split it, and what wrong predictions cost.

A table has a row for each matrix and J; numbers are float64, NaN or infinite where nothing ran. Its columns:

- ``matrix``: rows of one name are one matrix, or one matrix in one dtype, which then follows a blank
- the features of `spmark.impls.liteform.features.SELECTION`, and ``width``, which is J
- ``partitions, max_width, cell_us``: of the fastest config of CELL
- ``csr_us``: time of the fixed format that this config is compared with; ``speedup`` over it
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.features import PARTITIONS, SELECTION
from spmark.impls.tuning.race import ConfigTime
from spmark.studies.liteform.labels import FIXED, MatrixLabels

SPEEDUP = 1.1
"""Least speed-up over the fixed formats with which CELL counts as the winner (section 5.1)."""
_TRAINED = 0.8
_PUBLISHED = {
    "num_rows": "num_rows",
    "num_cols": "num_cols",
    "nnz": "nnz",
    "avg_nnz_per_row": "avg_length",
    "min_nnz_per_row": "min_length",
    "max_nnz_per_row": "max_length",
    "std_dev_nnz_per_row": "std_length",
    "K": "width",
    "best_num_partitions": "partitions",
    "best_max_bucket_width": "max_width",
    "exe_time_hyb(ms)": "cell_us",
    "exe_time_naive(ms)": "csr_us",
    "speed_to_naive": "speedup",
}


def numbers(table: pd.DataFrame, names: Sequence[str] = SELECTION) -> NDArray[np.float64]:
    """Give the features of the format selection, (n, len(names)), in the order of ``names``."""
    return np.ascontiguousarray(table[[*names]], np.float64)  # row by row: sums of columns depend on the order


def partition_numbers(table: pd.DataFrame) -> NDArray[np.float64]:
    """Give the features of the number of partitions, (n, 8), in the order of `PARTITIONS`: lengths are over K."""
    densities = {name.replace("length", "density"): table[name] / table["num_cols"] for name in SELECTION[3:]}
    return numbers(table.assign(**densities), PARTITIONS)


def where_cell_wins(table: pd.DataFrame, least: float = SPEEDUP) -> pd.DataFrame:
    """Keep the rows in which CELL wins; no row in which a measurement is missing."""
    return table[table["speedup"] >= least]


def read_columns(text: str, columns: Sequence[str]) -> pd.DataFrame:
    """Read names and numbers, float64, of a CSV that the authors published; an empty cell is NaN.

    What the text holds is known: `spmark.datasets.published` compares its digest.
    """
    kinds, missing = {"name": "str", **dict.fromkeys(columns, "float64")}, dict.fromkeys(columns, ("", "nan"))
    how: Any = {"dtype": kinds, "na_values": missing, "keep_default_na": False, "float_precision": "round_trip"}
    table: pd.DataFrame = pd.read_csv(io.StringIO(text), usecols=[*kinds], **how)
    return table


def read_published(text: str) -> pd.DataFrame:
    """Read the authors' labels."""
    table = read_columns(text, [*_PUBLISHED]).rename(columns={"name": "matrix", **_PUBLISHED})
    return table.assign(cell_us=table["cell_us"] * 1e3, csr_us=table["csr_us"] * 1e3)


def table_of(rows: Iterable[MatrixLabels]) -> pd.DataFrame:
    """Give labels as a table, which compares CELL with the fastest of the fixed formats.

    Parameters
    ----------
    rows : iterable of MatrixLabels

    Returns
    -------
    DataFrame
        A row for each matrix, dtype and J at which CELL and CSR have times; named ``source/matrix dtype``.

    Raises
    ------
    DatasetError
        No row has times.
    """
    lines = [line for row in rows for width in row.widths if (line := _line(row, width))]
    if not lines:
        raise DatasetError("expected labels with times of CELL and CSR, found none")
    return pd.DataFrame(lines)


def _line(row: MatrixLabels, width: int) -> dict[str, Any]:
    """Give a row of a table for one J; an empty one where CELL or CSR has no time."""
    times = [(ConfigTime.of({}, t.samples_us[width]), t) for t in row.tried if t.samples_us.get(width)]
    fixed = {f: np.median(row.fixed_us[f][width]) for f in FIXED if row.fixed_us.get(f, {}).get(width)}
    if not times or StoredAs.CSR not in fixed:
        return {}
    fastest, csr_us = min((timed for timed, _ in times), key=lambda timed: timed.us), min(fixed.values())
    # Of configs that noise cannot tell apart the label is the simplest, since that is what should be learned.
    tied = [(one.partitions, timed.us, one.max_width) for timed, one in times if timed.ties(fastest)]
    partitions, _, max_width = min(tied, key=lambda one: one[:2])
    about = {"matrix": f"{row.matrix} {row.dtype}", **asdict(row.features), "width": width}
    chosen = {"partitions": float(partitions), "max_width": max_width, "cell_us": fastest.us}
    return about | chosen | {"csr_us": csr_us, "speedup": csr_us / fastest.us}


def drawn_split(matrix: pd.Series, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Split as the public code does: test rows are drawn with replacement, and a row that is drawn twice counts once.

    Returns
    -------
    train, test : (n,), (m,) int64
        Positions in order; fewer than a fifth are tests: 406 of 2,279 where the paper speaks of a fifth.
    """
    samples = len(matrix)
    draws = samples - min(int(samples * _TRAINED), samples - 1)
    test = np.unique(rng.integers(0, samples, draws))
    return np.setdiff1d(np.arange(samples), test), test


def disjoint_split(matrix: pd.Series, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Split by matrix: all widths and dtypes of one are on the same side, and four fifths of the matrices train.

    Parameters
    ----------
    matrix : (n,) str
        Of a table; the word behind a blank is a dtype and does not tell matrices apart.
    rng : Generator

    Returns
    -------
    train, test : (n,), (m,) int64
        Positions in order.
    """
    names, of_row = np.unique([name.partition(" ")[0] for name in matrix], return_inverse=True)
    trained = rng.permutation(names.size)[: max(1, int(names.size * _TRAINED))]
    on_train = np.isin(of_row, trained)
    return np.flatnonzero(on_train), np.flatnonzero(~on_train)


def selection_regret(table: pd.DataFrame, cell: NDArray[np.bool_]) -> float:
    """Give how much longer the chosen formats take than the faster of the two: geometric mean of the ratios, minus 1.

    Parameters
    ----------
    table : DataFrame
        n rows; those in which one of the formats has no time are left out.
    cell : (n,) bool
        Where CELL was chosen.
    """
    times = table[["cell_us", "csr_us"]].to_numpy()
    both = np.isfinite(times).all(axis=1)
    ratios = np.where(cell, *times.T)[both] / times[both].min(axis=1)
    return float(np.exp(np.mean(np.log(ratios))) - 1)
