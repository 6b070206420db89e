"""Classifiers by scikit-learn: the ten kinds that the paper compares, and the two forests that become a predictor.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 7.3 and tables 5 and 6. The settings are those of
the public code: all features are standardised, and settings that are not named here stay at scikit-learn's defaults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.liteform.features import PARTITIONS, SELECTION, SELECTION_BY_WIDTH
from spmark.impls.liteform.forest import ARRAYS, Forest
from spmark.impls.liteform.predictor import ForestCard, Predictor
from spmark.studies.liteform.labels import MatrixLabels
from spmark.studies.liteform.tables import (
    LabelTable,
    disjoint_split,
    partition_regret,
    selection_regret,
    table_of,
)
from spmark.studies.rows import untrained

_LEAST = 10
_SPLITS = 10
"""Seeds of `disjoint_split` that say how good a predictor is."""
FOREST = "Random Forest"
"""The kind that the paper and this project use."""


def model_kinds(seed: int = 42) -> Mapping[str, Callable[[], Any]]:
    """Give a function that makes each kind of classifier, in the order of the paper's tables.

    Parameters
    ----------
    seed : int
        Seed of all random numbers; the public code uses 42.

    Raises
    ------
    UnsupportedError
        scikit-learn is not installed.
    """
    try:
        from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
        from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF
        from sklearn.naive_bayes import GaussianNB
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.neural_network import MLPClassifier
        from sklearn.svm import SVC
        from sklearn.tree import DecisionTreeClassifier
    except ImportError as error:
        raise untrained("scikit-learn", error) from error
    return {
        FOREST: lambda: RandomForestClassifier(random_state=seed),
        "KNeighbors": KNeighborsClassifier,
        "Linear SVM": lambda: SVC(kernel="linear", random_state=seed),
        "RBF SVM": lambda: SVC(gamma=2, C=1, random_state=seed),
        "Gaussian Process": lambda: GaussianProcessClassifier(1.0 * RBF(1.0), random_state=seed),
        "Decision Tree": lambda: DecisionTreeClassifier(random_state=seed),
        "Neural Net": lambda: MLPClassifier(alpha=1, max_iter=1000, random_state=seed),
        "AdaBoost": lambda: AdaBoostClassifier(random_state=seed),
        "Naive Bayes": GaussianNB,
        "QDA": QuadraticDiscriminantAnalysis,
    }


def fit(kind: Callable[[], Any], features: NDArray[np.float64], labels: NDArray[Any]) -> Any:
    """Train a classifier behind a standardisation of its features.

    Parameters
    ----------
    kind : callable
        Out of `model_kinds`.
    features : (n, f) float64
    labels : (n,) integers or booleans
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), kind()).fit(features, labels)


def cosine(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Give the cosine of the angle between two vectors of labels: the public code's similarity, over all samples."""
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    norm = float(np.linalg.norm(truth) * np.linalg.norm(predicted))
    return float(truth @ predicted) / norm if norm else float("nan")


def cosine_by_matrix(matrix: NDArray[Any], truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Give the mean over the matrices of the cosine between their labels at several widths: the paper's equation 2."""
    names, group = np.unique(matrix, return_inverse=True)
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    dot, left, right = (
        np.bincount(group, weights, names.size) for weights in (truth * predicted, truth**2, predicted**2)
    )
    return float(np.mean(dot / np.sqrt(left * right)))


def similarity(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Give the mean of 1 - |p - q| / max(p, q): the paper's equation 1."""
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    return float(np.mean(1 - np.abs(truth - predicted) / np.maximum(truth, predicted)))


def balanced_accuracy(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Give the share of each true class that was recognised, averaged over the classes."""
    return float(np.mean([np.mean(predicted[truth == label] == label) for label in np.unique(truth)]))


def trained(
    kind: Callable[[], Any],
    train: tuple[NDArray[np.float64], NDArray[Any]],
    test: NDArray[np.float64],
) -> tuple[NDArray[Any], float, float]:
    """Train on some samples and predict others.

    Returns
    -------
    predicted : (m,) labels
    train_s, infer_s : float
        Seconds of both; inference is of all of ``test`` in one call.
    """
    started = perf_counter()
    model = fit(kind, *train)
    fitted = perf_counter()
    predicted = model.predict(test)
    return predicted, fitted - started, perf_counter() - fitted


def train(labels: LabelTable, card: ForestCard, by_width: bool = False) -> Predictor:
    """Train both models on all labels.

    As in the public code, the selection sees the first width of every matrix, does not know J, and asks for a speed-up
    of 1.1. The number of partitions sees every row in which CELL has this speed-up. Settings and seed are the public
    code's.

    Parameters
    ----------
    labels : LabelTable
    card : ForestCard
        Facts about the labels; rows, features and versions are filled in.
    by_width : bool
        This project's way: the selection sees every row with its J, and asks whether CELL is faster at all.

    Raises
    ------
    DatasetError
        There are too few labels, or all are of one class.
    """
    one, winners = labels.one_per_matrix(), labels.where_cell_wins()
    seen, order = (labels, SELECTION_BY_WIDTH) if by_width else (one, SELECTION)
    wins = seen.faster if by_width else seen.wins
    if one.size < _LEAST or winners.size < _LEAST or wins.all() or not wins.any():
        raise DatasetError(
            f"expected at least {_LEAST} matrices, some of which CELL wins on and some not, found {one.size} with "
            f"{int(wins.sum())} wins; measure more labels"
        )
    forest = model_kinds()[FOREST]
    selection_x, partition_x = seen.selection(order), winners.partition_features()
    selection = fit(forest, selection_x, wins.astype(np.int64))
    partitions = fit(forest, partition_x, winners.partitions.astype(np.int64))
    made_with = {"scikit-learn": version("scikit-learn"), "numpy": version("numpy"), **card.made_with}
    filled = card.model_copy(
        update={
            "rows": {"selection": seen.size, "partitions": winners.size},
            "features": {"selection": order, "partitions": PARTITIONS},
            "made_with": made_with,
        }
    )
    return Predictor(filled, forest_of(selection, selection_x), forest_of(partitions, partition_x))


def held_out(rows: Sequence[MatrixLabels], card: ForestCard) -> dict[str, dict[str, float]]:
    """Train on four fifths of the matrices and predict the others, several times.

    Parameters
    ----------
    rows : sequence of MatrixLabels
        Labels from `spmark.studies.liteform.labels.read_labels`.
    card : ForestCard

    Returns
    -------
    dict
        Accuracies, balanced accuracies and regrets in time of both models, each beside that of an answer that is
        always the same: the mean, the least and the greatest over the splits; NaN where a split has no times.

    Raises
    ------
    DatasetError
        `train` raises it.
    """
    labels = table_of(rows)
    values_of: dict[str, list[float]] = defaultdict(list)
    for seed in range(_SPLITS):
        on_train, on_test = disjoint_split(labels.matrix, np.random.default_rng(seed))
        predictor = train(labels.take(on_train), card, by_width=True)
        test = labels.take(on_test)
        names = {str(name) for name in test.matrix}
        seen = [row for row in rows if f"{row.matrix} {row.dtype}" in names]
        for name, value in (*_selection(predictor, test), *_partitions(predictor, test, seen)):
            values_of[name].append(value)
    return {
        name: {"mean": float(np.mean(values)), "least": min(values), "greatest": max(values)}
        for name, values in values_of.items()
    }


def _selection(predictor: Predictor, test: LabelTable) -> Iterator[tuple[str, float]]:
    wins = test.faster.astype(np.int64)
    samples = test.selection(predictor.card.features["selection"])
    said = np.array([predictor.selection.predict(sample) for sample in samples])
    yield "selection, accuracy", float(np.mean(said == wins))
    yield "selection, balanced accuracy", balanced_accuracy(wins, said)
    yield "selection, commonest label", float(max(wins.mean(), 1 - wins.mean()))
    yield "selection, regret", selection_regret(test, said.astype(np.bool_))
    yield "selection, regret of the paper's bar", selection_regret(test, test.wins)
    yield "selection, regret of always CELL", selection_regret(test, np.ones(test.size, np.bool_))


def _partitions(predictor: Predictor, test: LabelTable, rows: Sequence[MatrixLabels]) -> Iterator[tuple[str, float]]:
    winners = test.where_cell_wins()
    if winners.size:
        truth = winners.partitions.astype(np.int64)
        said = np.array([predictor.partitions.predict(sample) for sample in winners.partition_features()])
        yield "partitions, accuracy", float(np.mean(said == truth))
        yield "partitions, balanced accuracy", balanced_accuracy(truth, said)
        yield "partitions, share of one", float(np.mean(truth == 1))
    yield "partitions, regret", partition_regret(rows, lambda f, j: int(predictor.partitions.predict(f.partitions(j))))
    yield "partitions, regret of one", partition_regret(rows, lambda *_: 1)


def forest_of(model: Any, features: NDArray[np.float64]) -> Forest:
    """Take over a fitted pipeline of a standardisation and a forest or a single tree of scikit-learn.

    Parameters
    ----------
    model : Pipeline
        Result of `fit`.
    features : (n, f) float64
        Samples that it was trained on; the forest keeps their ranges.
    """
    scaler, last = model.steps[0][1], model.steps[-1][1]
    trees = [tree.tree_ for tree in getattr(last, "estimators_", [last])]
    firsts = np.cumsum([0, *(tree.node_count for tree in trees)])
    parts: dict[str, list[NDArray[Any]]] = {"feature": [], "threshold": [], "left": [], "right": []}
    leaves: list[NDArray[np.float64]] = []
    num_leaves = 0
    for tree, first in zip(trees, firsts, strict=False):
        leaf = tree.children_left < 0
        ordinal = np.cumsum(leaf) - 1 + num_leaves
        parts["feature"].append(np.where(leaf, -1, tree.feature))
        parts["threshold"].append(np.where(leaf, 0.0, tree.threshold))
        parts["left"].append(np.where(leaf, ordinal, tree.children_left + first))
        parts["right"].append(np.where(leaf, -1, tree.children_right + first))
        leaves.append(tree.value[leaf, 0])
        num_leaves += int(leaf.sum())
    arrays = {name: np.concatenate(of_trees) for name, of_trees in parts.items()} | {
        "roots": firsts[:-1],
        "leaves": np.concatenate(leaves),
        "mean": scaler.mean_,
        "scale": scaler.scale_,
        "low": features.min(0),
        "high": features.max(0),
        "classes": np.asarray(last.classes_),
    }
    return Forest(**{name: np.ascontiguousarray(arrays[name], kind) for name, (kind, _) in ARRAYS.items()})
