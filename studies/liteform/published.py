"""How well predictors do on labels that they did not see: as the public code evaluates them, and as one should.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025: tables 5 and 6, figures 7, 9 and 10. Nothing runs on a GPU;
the times are the labels'.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.studies.liteform import forests, tables

SHARES = tuple(tenth / 10 for tenth in range(1, 11))
"""Parts of the training rows that figure 10 trains on."""
FEW_ROWS = 500
"""Rows that `SLOW` is trained on, unless all are asked for, and on the first split of the public kind only."""
_LEAST_SIZE = 2000
_LOW = 0.6
_ADDED_BACK = 7
_DRAWS = 1000
_DIGITS = 6
_HELD_OUT = 10
"""Seeds of `held_out`."""


PUBLIC, DISJOINT = "public code", "matrix-disjoint"
SPLITS = {PUBLIC: tables.drawn_split, DISJOINT: tables.disjoint_split}
"""How rows are divided into those that train and those that test. As in the public code, test rows are drawn with
replacement, and widths of one matrix may stand on both sides."""
Score = dict[str, Any]
"""One metric of one model under one way of splitting: ``task``, ``split``, ``model``; ``metric``, or ``failed``, whose
``note`` says why; ``values``, one for each seed in their order; ``train_rows`` of a point of figure 10."""


class _Divided(NamedTuple):
    """The rows of a task, divided by one seed."""

    task: str
    split: str
    seed: int
    rows: pd.DataFrame
    features: NDArray[np.float64]
    truth: NDArray[Any]
    train: NDArray[np.int64]
    test: NDArray[np.int64]

    def scored(self, kind: Callable[[], Any], train: NDArray[np.int64]) -> dict[str, float]:
        """Train a model on some rows, and give its metrics on the test rows; seconds are of all rows in one call."""
        from sklearn.metrics import balanced_accuracy_score

        truth, tests, started = self.truth[self.test], self.rows.iloc[self.test], perf_counter()
        with warnings.catch_warnings():
            # Solvers that stop early warn, as does the score where a class has no test; the result counts as it is.
            warnings.simplefilter("ignore")
            model = forests.fit(kind, self.features[train], self.truth[train])
            fitted = perf_counter()
            said = model.predict(self.features[self.test])
            metrics = {
                "train_s": fitted - started,
                "infer_s": perf_counter() - fitted,
                # Micro-averaged precision, recall and F1, which the public code reports, are the accuracy once more.
                "accuracy": float(np.mean(said == truth)),
                "balanced accuracy": float(balanced_accuracy_score(truth, said)),
            }
        if self.task == "selection":
            return metrics | {"regret": tables.selection_regret(tests, said)}
        return metrics | {
            "cosine": forests.cosine(truth, said),
            "cosine by matrix": forests.cosine_by_matrix(tests["matrix"], truth, said),
            "similarity": forests.similarity(truth, said),
        }


def _divided(
    labels: pd.DataFrame, seeds: int, tell: Callable[[str], None], by_width: bool = False
) -> Iterator[_Divided]:
    """Divide the rows of each task in each way, by width in the second one alone; seed s draws split s."""
    for task, (rows, features, truth) in forests.questions(labels, by_width).items():
        for split in (DISJOINT,) if by_width else SPLITS:
            for seed in range(seeds):
                tell(f"{task}, {split} split, seed {seed}")
                sides = SPLITS[split](rows["matrix"], np.random.default_rng(seed))
                yield _Divided(task, split, seed, rows, features, truth, *sides)


def held_out(labels: pd.DataFrame) -> list[dict[str, Any]]:
    """Train forests by width on four fifths of the matrices, ten times, and predict the others.

    Returns
    -------
    list of dict
        For each question, model and metric the mean, the least and the greatest; `MAJORITY` stands beside the forest.
    """
    names, kinds = ["task", "model", "metric"], forests.model_kinds()
    lines = [
        (of.task, name, metric, value)
        for of in _divided(labels, _HELD_OUT, lambda _: None, by_width=True)
        for name in (forests.FOREST, forests.MAJORITY)
        for metric, value in of.scored(kinds[name], of.train).items()
    ]
    spreads = pd.DataFrame(lines, columns=[*names, "value"]).groupby(names, sort=False)["value"]
    return lines_of(spreads.agg(["mean", "min", "max"]).set_axis(["mean", "least", "greatest"], axis=1).reset_index())


def score_models(labels: pd.DataFrame, seeds: int, slow: bool, tell: Callable[[str], None]) -> list[Score]:
    """Train and test every kind of model on every split.

    Parameters
    ----------
    labels : DataFrame
        All published rows (`spmark.studies.liteform.tables.read_published`).
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
    names = ["task", "split", "model", "metric"]
    lines, failed = [], dict[tuple[str, ...], str]()
    for of in _divided(labels, seeds, tell):
        for name, kind in forests.model_kinds().items():
            train = of.train
            if name == forests.SLOW:
                if of.seed or of.split != PUBLIC:
                    continue
                train = train if slow else np.random.default_rng(of.seed).permutation(train)[:FEW_ROWS]
            try:
                lines += [(of.task, of.split, name, *found) for found in of.scored(kind, train).items()]
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                failed[of.task, of.split, name, "failed"] = str(error)
    few = "" if slow else f"trained on {FEW_ROWS} rows of one split"
    found = pd.DataFrame(lines, columns=[*names, "values"]).groupby(names, sort=False)["values"].agg(list)
    scores = [row | {"note": few * (row["model"] == forests.SLOW)} for row in lines_of(found.reset_index())]
    return scores + [dict(zip(names, key, strict=True)) | {"note": reason} for key, reason in failed.items()]


def learning_curves(labels: pd.DataFrame, seeds: int, tell: Callable[[str], None]) -> list[Score]:
    """Train the random forest on growing parts of the training side (figure 10), on both kinds of splits."""
    names, lines = ["task", "split", "share", "metric"], []
    for of in _divided(labels, seeds, tell):
        train = np.random.default_rng(of.seed).permutation(of.train)
        for share in SHARES:
            part = train[: int(train.size * share)]
            metrics = of.scored(forests.model_kinds()[forests.FOREST], part)
            shown = [metric for metric in ("accuracy", "cosine") if metric in metrics]
            lines += [(of.task, of.split, share, metric, metrics[metric], part.size) for metric in shown]
    points = pd.DataFrame(lines, columns=[*names, "values", "train_rows"]).groupby(names, sort=False)
    table = points.agg({"values": list, "train_rows": "mean"}).reset_index().drop(columns="share")
    return lines_of(table.assign(model=forests.FOREST, train_rows=table["train_rows"].round().astype(int)))


def lines_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Give each line of a table by the names of its columns."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def speed_ratios(text: str) -> pd.DataFrame:
    """Read figure 7's data: LiteForm's speed over tuned SparseTIR's, geometric mean over the widths of each matrix.

    Returns
    -------
    DataFrame
        ``num_rows`` and ``ratio`` of each SuiteSparse matrix with at least 2,000 rows and columns.
    """
    rows = _read(text, ["Oracle(ms)", "LiteForm(ms)"])
    logs = rows.assign(ratio=np.log(rows["Oracle(ms)"] / rows["LiteForm(ms)"]))
    found = logs.groupby("name", sort=False).agg({"num_rows": "first", "ratio": "mean"})
    return found.assign(ratio=np.exp(found["ratio"]))


def overhead_ratios(text: str) -> pd.DataFrame:
    """Read figure 9's data: SparseTIR's tuning seconds over LiteForm's, of the means over the widths of each matrix.

    Returns
    -------
    DataFrame
        As `speed_ratios`.
    """
    tuning, own = "autotuning_time(s)", ["time_select(s)", "time_num_parts(s)", "time_bucket(s)"]
    matrices = _read(text, [tuning, *own]).groupby("name", sort=False)
    seconds = matrices[[tuning, *own]].sum()
    return pd.DataFrame({"num_rows": matrices["num_rows"].first(), "ratio": seconds[tuning] / seconds[own].sum(axis=1)})


def _read(text: str, columns: list[str]) -> pd.DataFrame:
    """Give the rows of large matrices; like the published script, pass over a handful of rows without sizes."""
    rows = tables.read_columns(text, ["num_rows", "num_cols", *columns])
    return rows[(rows[["num_rows", "num_cols"]] >= _LEAST_SIZE).all(axis=1)].astype({"num_rows": np.int64})


def selected_as_published(ratios: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    """Redraw the selection behind figure 7: matrices below 0.6 are dropped, and seven of them added back at random.

    The public plotting script does so, which the paper does not say.

    Returns
    -------
    kept : int
        Matrices that are left.
    geomeans : (1000,) float64
        Over these, for each draw.
    """
    logs, low = np.log(ratios), ratios < _LOW
    rng = np.random.default_rng(0)
    back = min(_ADDED_BACK, int(low.sum()))
    kept = int((~low).sum()) + back
    sums = [logs[~low].sum() + rng.permutation(logs[low])[:back].sum() for _ in range(_DRAWS)]
    return kept, np.exp(np.array(sums) / kept)


def rounded(told: Mapping[str, Any]) -> dict[str, Any]:
    """Give plain lists of numbers to six digits, as the file of a study has them."""
    lists = {name: np.asarray(value) for name, value in told.items() if not isinstance(value, str | int)}
    return {**told, **{name: value.round(_DIGITS).tolist() for name, value in lists.items()}}
