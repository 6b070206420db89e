"""How well the predictors do on the published labels: as the public code evaluates them, and as one should.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025: tables 5 and 6, figures 7, 9 and 10. Nothing runs on a GPU;
the times are the authors'.
"""

from __future__ import annotations

import io
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.studies.liteform.forests import (
    FOREST,
    balanced_accuracy,
    cosine,
    cosine_by_matrix,
    model_kinds,
    similarity,
    trained,
)
from spmark.studies.liteform.tables import LabelTable, disjoint_split, drawn_split, selection_regret

SHARES = tuple(tenth / 10 for tenth in range(1, 11))
"""Parts of the training rows that figure 10 trains on."""
MAJORITY = "majority"
"""The model that always answers with the commonest label of its training rows."""
SLOW = "Gaussian Process"
"""Trained on the first split of the public kind only: its time grows with the cube of the rows, to hours for all."""
FEW_ROWS = 500
"""Rows that `SLOW` is trained on, unless all are asked for."""
_LEAST_SIZE = 2000
_LOW = 0.6
_ADDED_BACK = 7
_DRAWS = 1000
_DIGITS = 6


class Task(StrEnum):
    """The question that a model answers."""

    SELECTION = "selection"
    PARTITIONS = "partitions"


class Split(StrEnum):
    """How rows are divided into those that train and those that test."""

    PUBLIC = "public code"
    """Test rows drawn with replacement; widths of one matrix may stand on both sides."""
    DISJOINT = "matrix-disjoint"


@dataclass(frozen=True)
class Score:
    """One metric of one model under one way of splitting."""

    task: Task
    split: Split
    model: str
    metric: str
    """accuracy, balanced accuracy, cosine, ..., or ``failed``, whose ``note`` says why."""
    values: tuple[float, ...]
    """One for each seed, in their order."""
    train_rows: int = 0
    """Rows trained on, for figure 10; 0 stands for all of the training side."""
    note: str = ""


@dataclass(frozen=True, eq=False)
class _Divided:
    """The rows of a task, divided by one seed."""

    task: Task
    split: Split
    seed: int
    features: NDArray[np.float64]
    truth: NDArray[Any]
    train: NDArray[np.int64]
    tests: LabelTable
    test: NDArray[np.int64]


def _divided(labels: LabelTable, seeds: int) -> Iterator[_Divided]:
    """Divide the rows of each task in each way; seed s draws split s."""
    for task in Task:
        rows = labels.one_per_matrix() if task is Task.SELECTION else labels.where_cell_wins()
        if task is Task.SELECTION:
            inputs = rows.selection(), rows.wins
        else:
            inputs = rows.partition_features(), rows.partitions.astype(np.int64)
        for split in Split:
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                public = split is Split.PUBLIC
                train, test = drawn_split(rows.size, rng) if public else disjoint_split(rows.matrix, rng)
                yield _Divided(task, split, seed, *inputs, train, rows.take(test), test)


def score_models(labels: LabelTable, seeds: int, slow: bool, tell: Callable[[str], None]) -> list[Score]:
    """Train and test every kind of model on every split.

    Parameters
    ----------
    labels : LabelTable
        All published rows.
    seeds : int
        Splits of each kind; seed s draws split s.
    slow : bool
        Train the Gaussian process on all rows of its split, and not on `FEW_ROWS` of them.
    tell : callable
        Receives a line on the model in training, for people who wait.

    Returns
    -------
    list of Score
        A model that cannot be trained has a score whose metric is ``failed``.
    """
    values_of: dict[tuple[Task, Split, str, str], list[float]] = defaultdict(list)
    failed: dict[tuple[Task, Split, str], str] = {}
    for of in _divided(labels, seeds):
        tell(f"{of.task}, {of.split} split, seed {of.seed}")
        for name, predict in _models(of, slow).items():
            try:
                metrics = dict(_metrics(of, *predict()))
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                failed[of.task, of.split, name] = str(error)
                continue
            for metric, value in metrics.items():
                values_of[of.task, of.split, name, metric].append(value)
    few = "" if slow else f"trained on {FEW_ROWS} rows of one split"
    scores = [Score(*key, tuple(values), note=few if key[2] == SLOW else "") for key, values in values_of.items()]
    return scores + [Score(*key, "failed", (), note=reason) for key, reason in failed.items()]


def learning_curves(labels: LabelTable, seeds: int, tell: Callable[[str], None]) -> list[Score]:
    """Train the random forest on growing parts of the training side (figure 10), on both kinds of splits."""
    values_of: dict[tuple[Task, Split, int, str], list[float]] = defaultdict(list)
    forest = model_kinds()[FOREST]
    for of in _divided(labels, seeds):
        tell(f"{of.task} over the number of rows, {of.split} split, seed {of.seed}")
        train, truth = np.random.default_rng(of.seed).permutation(of.train), of.truth[of.test]
        for tenth, share in enumerate(SHARES, 1):
            part = train[: int(train.size * share)]
            predicted, *_ = trained(forest, (of.features[part], of.truth[part]), of.features[of.test])
            metrics = {"accuracy": float(np.mean(predicted == truth)), "rows": float(part.size)}
            if of.task is Task.PARTITIONS:
                metrics["cosine"] = cosine(truth, predicted)
            for metric, value in metrics.items():
                values_of[of.task, of.split, tenth, metric].append(value)
    return [
        Score(task, split, FOREST, metric, tuple(values), round(np.mean(values_of[task, split, tenth, "rows"])))
        for (task, split, tenth, metric), values in values_of.items()
        if metric != "rows"
    ]


Answer = tuple[NDArray[Any], float, float]
"""What a model predicts of the test rows, and the seconds of training and of predicting."""


def _models(of: _Divided, slow: bool) -> dict[str, Callable[[], Answer]]:
    """Give, by the name of each model, the function that trains it and predicts."""
    train, test = (of.features[of.train], of.truth[of.train]), of.features[of.test]

    def by_kind(kind: Callable[[], Any], most: int | None = None) -> Answer:
        some = np.random.default_rng(of.seed).permutation(train[1].size)[:most]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # solvers that stop early warn; their result counts as it is
            return trained(kind, (train[0][some], train[1][some]) if most else train, test)

    def majority() -> Answer:
        classes, counts = np.unique(train[1], return_counts=True)
        return np.full(test.shape[0], classes[counts.argmax()]), 0.0, 0.0

    kinds = dict(model_kinds())
    slowest = kinds.pop(SLOW)
    models: dict[str, Callable[[], Answer]] = {name: partial(by_kind, kind) for name, kind in kinds.items()}
    if of.seed == 0 and of.split is Split.PUBLIC:
        models[SLOW] = partial(by_kind, slowest, None if slow else FEW_ROWS)
    return {**models, MAJORITY: majority}


def _metrics(of: _Divided, predicted: NDArray[Any], train_s: float, infer_s: float) -> Iterator[tuple[str, float]]:
    truth = of.truth[of.test]
    yield "train_s", train_s
    yield "infer_s", infer_s
    # Micro-averaged precision, recall and F1, which the public code reports, are the accuracy once more.
    yield "accuracy", float(np.mean(predicted == truth))
    yield "balanced accuracy", balanced_accuracy(truth, predicted)
    if of.task is Task.PARTITIONS:
        yield "cosine", cosine(truth, predicted)
        yield "cosine by matrix", cosine_by_matrix(of.tests.matrix, truth, predicted)
        yield "similarity", similarity(truth, predicted)
    else:
        yield "regret", selection_regret(of.tests, predicted)


@dataclass(frozen=True, eq=False)
class Ratios:
    """Published ratios, one for each SuiteSparse matrix with at least 2,000 rows and columns."""

    num_rows: NDArray[np.int64]
    """(n,) of each matrix."""
    ratio: NDArray[np.float64]
    """(n,)."""


def speed_ratios(text: str, where: str) -> Ratios:
    """Read figure 7's data: LiteForm's speed over tuned SparseTIR's, geometric mean over the widths of each matrix.

    Raises
    ------
    DatasetError
        The CSV is not the published one.
    """
    rows = _read(text, where, ["Oracle(ms)", "LiteForm(ms)"])
    rows["log"] = np.log(rows["Oracle(ms)"] / rows["LiteForm(ms)"])
    matrices = rows.groupby("name", sort=False)
    return Ratios(matrices["num_rows"].first().to_numpy(np.int64), np.exp(matrices["log"].mean().to_numpy()))


def overhead_ratios(text: str, where: str) -> Ratios:
    """Read figure 9's data: SparseTIR's tuning seconds over LiteForm's, of the means over the widths of each matrix.

    Raises
    ------
    DatasetError
        The CSV is not the published one.
    """
    tuning, own = "autotuning_time(s)", ["time_select(s)", "time_num_parts(s)", "time_bucket(s)"]
    matrices = _read(text, where, [tuning, *own]).groupby("name", sort=False)
    seconds = matrices[[tuning, *own]].sum()
    ratio = seconds[tuning] / seconds[own].sum(axis=1)
    return Ratios(matrices["num_rows"].first().to_numpy(np.int64), ratio.to_numpy())


def _read(text: str, where: str, columns: list[str]) -> pd.DataFrame:
    """Give the rows of large matrices; like the published script, pass over a handful of rows without sizes."""
    rows = pd.read_csv(io.StringIO(text))
    if missing := {"name", "num_rows", "num_cols", *columns} - set(rows.columns):
        raise DatasetError(f"{where}:1: expected the published columns, missing {', '.join(sorted(missing))}")
    rows = rows[(rows[["num_rows", "num_cols"]] >= _LEAST_SIZE).all(axis=1)].copy()
    if rows.empty:
        raise DatasetError(f"{where}: expected rows below the header, found none of at least {_LEAST_SIZE} rows")
    return rows


def selected_as_published(speeds: Ratios) -> tuple[int, NDArray[np.float64]]:
    """Redraw the selection behind figure 7: matrices below 0.6 are dropped, and seven of them added back at random.

    The public plotting script does so, which the paper does not say.

    Returns
    -------
    kept : int
        Matrices that are left.
    geomeans : (1000,) float64
        Over these, for each draw.
    """
    logs, low = np.log(speeds.ratio), speeds.ratio < _LOW
    rng = np.random.default_rng(0)
    back = min(_ADDED_BACK, int(low.sum()))
    kept = int((~low).sum()) + back
    sums = [logs[~low].sum() + rng.permutation(logs[low])[:back].sum() for _ in range(_DRAWS)]
    return kept, np.exp(np.array(sums) / kept)


def rounded(told: Mapping[str, Any]) -> dict[str, Any]:
    """Give plain lists of numbers to six digits, as the file of a study has them."""
    numbers = {name: np.asarray(value) for name, value in told.items() if isinstance(value, tuple | list | np.ndarray)}
    return {**told, **{name: value.round(_DIGITS).tolist() for name, value in numbers.items()}}
