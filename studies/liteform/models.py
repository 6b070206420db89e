"""The ten kinds of classifiers that the paper compares, with scikit-learn, and how good a prediction is.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 7.3 and tables 5 and 6. The settings are those of
the public code: all features are standardised, and settings that are not named here stay at scikit-learn's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.studies.rows import untrained

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
