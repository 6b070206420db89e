"""Classifiers by scikit-learn: the ten kinds that the paper compares, and the two forests that become a predictor.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 7.3 and tables 5 and 6. The settings are those of
the public code: all features are standardised, and settings that are not named here stay at scikit-learn's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from spmark.impls.core.errors import DatasetError, needed
from spmark.impls.liteform.features import PARTITIONS, SELECTION, SELECTION_BY_WIDTH
from spmark.impls.liteform.forest import ARRAYS, Forest
from spmark.impls.liteform.predictor import ForestCard, Predictor
from spmark.studies.liteform import tables

_LEAST = 10
_SEED = 42
"""Of all random numbers, as in the public code."""
FOREST = "Random Forest"
"""The kind that the paper and this project use."""
SLOW = "Gaussian Process"
"""Its time grows with the cube of the rows, to hours for all."""
MAJORITY = "majority"
"""The model that always answers with the commonest label of its training rows."""


def model_kinds() -> Mapping[str, Callable[[], Any]]:
    """Give a function that makes each kind of classifier: as in the paper's tables, then the slow one, then `MAJORITY`.

    Raises
    ------
    UnsupportedError
        scikit-learn is not installed.
    """

    def kind(module: str, name: str, **settings: Any) -> Callable[[], Any]:
        return partial(getattr(needed(f"sklearn.{module}", "scikit-learn", "study"), name), **settings)

    kernel = 1.0 * kind("gaussian_process.kernels", "RBF")()
    return {
        FOREST: kind("ensemble", "RandomForestClassifier", random_state=_SEED),
        "KNeighbors": kind("neighbors", "KNeighborsClassifier"),
        "Linear SVM": kind("svm", "SVC", kernel="linear", random_state=_SEED),
        "RBF SVM": kind("svm", "SVC", gamma=2, C=1, random_state=_SEED),
        "Decision Tree": kind("tree", "DecisionTreeClassifier", random_state=_SEED),
        "Neural Net": kind("neural_network", "MLPClassifier", alpha=1, max_iter=1000, random_state=_SEED),
        "AdaBoost": kind("ensemble", "AdaBoostClassifier", random_state=_SEED),
        "Naive Bayes": kind("naive_bayes", "GaussianNB"),
        "QDA": kind("discriminant_analysis", "QuadraticDiscriminantAnalysis"),
        SLOW: kind("gaussian_process", "GaussianProcessClassifier", kernel=kernel, random_state=_SEED),
        MAJORITY: kind("dummy", "DummyClassifier"),
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
    return cosine_by_matrix(np.zeros(truth.size), truth, predicted)


def cosine_by_matrix(matrix: ArrayLike, truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Give the mean over the matrices of the cosine between their labels at several widths: the paper's equation 2."""
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    products = {"dot": truth * predicted, "left": truth**2, "right": predicted**2}
    sums = pd.DataFrame(products).groupby(np.asarray(matrix)).sum()
    return float((sums["dot"] / np.sqrt(sums["left"] * sums["right"])).mean())


def similarity(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Give the mean of 1 - |p - q| / max(p, q): the paper's equation 1."""
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    return float(np.mean(1 - np.abs(truth - predicted) / np.maximum(truth, predicted)))


def questions(
    labels: pd.DataFrame, by_width: bool = False
) -> dict[str, tuple[pd.DataFrame, NDArray[np.float64], NDArray[Any]]]:
    """Give what is learned, ``selection`` and ``partitions``: the rows that teach it, their features, and the answers.

    Parameters
    ----------
    labels : DataFrame
        A table of `spmark.studies.liteform.tables`.
    by_width : bool
        As of `train`.
    """
    winners = tables.where_cell_wins(labels)
    one = (labels.drop_duplicates("matrix"), SELECTION, tables.SPEEDUP)
    seen, order, least = (labels, SELECTION_BY_WIDTH, 1.0) if by_width else one
    return {
        "selection": (seen, tables.numbers(seen, order), (seen["speedup"] >= least).to_numpy()),
        "partitions": (winners, tables.partition_numbers(winners), winners["partitions"].to_numpy(np.int64)),
    }


def train(labels: pd.DataFrame, card: ForestCard, by_width: bool = False) -> Predictor:
    """Train both models on all labels.

    As in the public code, the selection sees the first width of every matrix (J = 32 in the published file), does not
    know J, and asks for a speed-up of 1.1. The number of partitions sees every row in which CELL has this speed-up.
    Settings and seed are the public code's.

    Parameters
    ----------
    labels : DataFrame
        A table of `spmark.studies.liteform.tables`.
    card : ForestCard
        Facts about the labels; rows, features and versions are filled in.
    by_width : bool
        This project's way: the selection sees every row with its J, and asks whether CELL is faster at all.

    Raises
    ------
    DatasetError
        There are too few labels, or all are of one class.
    """
    (seen, features, wins), (winners, densities, partitions) = questions(labels, by_width).values()
    matrices = labels["matrix"].nunique()
    if matrices < _LEAST or len(winners) < _LEAST or wins.all() or not wins.any():
        raise DatasetError(
            f"expected at least {_LEAST} matrices, some of which CELL wins on and some not, found {matrices} with "
            f"{int(wins.sum())} wins; measure more labels"
        )
    filled = card.model_copy(
        update={
            "rows": {"selection": len(seen), "partitions": len(winners)},
            "features": {"selection": SELECTION_BY_WIDTH if by_width else SELECTION, "partitions": PARTITIONS},
            "made_with": {name: version(name) for name in ("scikit-learn", "numpy")} | card.made_with,
        }
    )
    forest, told = model_kinds()[FOREST], ((features, wins.astype(np.int64)), (densities, partitions))
    return Predictor(filled, *(forest_of(fit(forest, *question), question[0]) for question in told))


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
    firsts = np.cumsum([0, *(one.node_count for one in trees)])
    nodes = ("feature", "threshold", "children_left", "children_right", "value")
    feature, threshold, left, right, value = (np.concatenate([getattr(one, name) for one in trees]) for name in nodes)
    shift, leaf = np.repeat(firsts[:-1], np.diff(firsts)), left < 0
    arrays = {
        "feature": np.where(leaf, -1, feature),
        "threshold": np.where(leaf, 0.0, threshold),
        "left": np.where(leaf, np.cumsum(leaf) - 1, left + shift),
        "right": np.where(leaf, -1, right + shift),
        "roots": firsts[:-1],
        "leaves": value[leaf, 0],
        "mean": scaler.mean_,
        "scale": scaler.scale_,
        "low": features.min(0),
        "high": features.max(0),
        "classes": np.asarray(last.classes_),
    }
    return Forest(**{name: np.ascontiguousarray(arrays[name], kind) for name, kind in ARRAYS.items()})
