"""What scores the configs of a matrix in a study: a model, and what stands beside it with the same samples and configs.

Lower scores are better for all, so that all are judged in one way: the best of the first k that are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.dash.weights import TrainedModel
from spmark.impls.dash.withtorch import load_torch, to_numpy
from spmark.studies.dash.embeddings import Embeddings
from spmark.studies.dash.samples import MatrixSamples, SampleSet
from spmark.studies.rows import untrained

_GRADES = 31
"""Grades of relevance for LightGBM: the best time over a config's, in steps of 1/30."""
_ROUNDS = 200
_SETTINGS = {
    "objective": "lambdarank",
    "label_gain": list(range(_GRADES)),
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 5,
    "verbosity": -1,
    "deterministic": True,
    "num_threads": 1,
}


class Ranker(Protocol):
    """What scores configs."""

    def score(self, matrix: MatrixSamples) -> NDArray[np.float64]:
        """Score the configs of a matrix without a look at their times, (n,) float64; lower is better."""
        ...


class ModelScores:
    """A trained model's scores.

    Parameters
    ----------
    model : TrainedModel
        Of the samples' platform.
    embeddings : Embeddings, optional
        That others may have made.
    """

    def __init__(self, model: TrainedModel, embeddings: Embeddings | None = None) -> None:
        self._model, self._embed = model, (embeddings or Embeddings()).by(model.network)

    def score(self, matrix: MatrixSamples) -> NDArray[np.float64]:
        """Ask the network."""
        torch, network = load_torch(), self._model.network
        with torch.no_grad():
            vectors = matrix.common, self._model.encoder.encode(matrix.own)
            configs = network.embed_configs(*(torch.from_numpy(one).to(network.device) for one in vectors))
            return to_numpy(network.rank(self._embed(matrix).vector, configs)).astype(np.float64)

    def features_s(self, matrix: MatrixSamples) -> float:
        """Give the seconds that a matrix's embedding took, without down-sampling."""
        return self._embed(matrix).seconds


class RandomConfigs:
    """Configs in a random order, another one for each matrix and seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def score(self, matrix: MatrixSamples) -> NDArray[np.float64]:
        """Draw the scores; matrix id and seed decide them."""
        drawn = np.random.default_rng([self._seed, *matrix.matrix.encode()])
        return drawn.permutation(len(matrix.seconds)).astype(np.float64)


class ByRule:
    """The order of a platform's rule.

    Parameters
    ----------
    scores : mapping of str to (n,) float64
        Of the configs by id of the matrix (`spmark.impls.tuning.platform.RuledPlatform.by_rule`).
    """

    def __init__(self, scores: Mapping[str, NDArray[np.float64]]) -> None:
        self._scores = scores

    def score(self, matrix: MatrixSamples) -> NDArray[np.float64]:
        """Look the matrix up."""
        return self._scores[matrix.matrix]


class BestOnTarget:
    """The order of configs on the target platform's few training matrices.

    Configs are ordered by the mean logarithm of time over the best of the matrix. Matrices have other configs where a
    space is large: a config that no training matrix has stands behind the nearest one (L2 of the numbers) that has it.

    Parameters
    ----------
    samples : SampleSet
        Of the target platform.

    Raises
    ------
    DatasetError
        There is no sample.
    """

    def __init__(self, samples: SampleSet) -> None:
        gaps: dict[bytes, list[float]] = {}
        numbers: dict[bytes, NDArray[np.float32]] = {}
        for one in samples.matrices:
            for row, gap in zip(_numbers(one), np.log(one.seconds / one.seconds.min()), strict=True):
                gaps.setdefault(row.tobytes(), []).append(float(gap))
                numbers[row.tobytes()] = row
        if not gaps:
            raise DatasetError("expected samples of the target platform, found none")
        self._numbers = np.stack(list(numbers.values())).astype(np.float64)
        self._means = np.array([np.mean(gaps[key]) for key in numbers])

    def score(self, matrix: MatrixSamples) -> NDArray[np.float64]:
        """Give every config its place; O(configs of this matrix times configs of all training matrices)."""
        distances = np.square(_numbers(matrix)[:, None, :].astype(np.float64) - self._numbers[None]).sum(2)
        nearest = distances.argmin(1)
        order = np.lexsort((distances.min(1), self._means[nearest]))
        places = np.empty(len(order), np.float64)
        places[order] = np.arange(len(order))
        return places


class TreeRanker:
    """LightGBM's lambdarank on a matrix's statistics and a config's numbers.

    Parameters
    ----------
    target : SampleSet
        Of the target platform.
    source : SampleSet, optional
        Of the source platform. Its own parameters, which the target lacks, are missing values, and vice versa; a
        further column says which platform a row is of.
    seed : int

    Raises
    ------
    DatasetError
        There is no sample.
    UnsupportedError
        LightGBM is not installed.
    """

    def __init__(self, target: SampleSet, source: SampleSet | None = None, seed: int = 0) -> None:
        try:
            import lightgbm
        except ImportError as error:
            raise untrained("LightGBM", error) from error
        groups = [(one, True) for one in target.matrices] + [
            (one, False) for one in (source.matrices if source else ())
        ]
        if not any(len(one.seconds) for one, _ in groups):
            raise DatasetError("expected samples to train LightGBM on, found none")
        self._other = source.matrices[0].own.shape[1] if source and source.matrices else 0
        self._own = target.matrices[0].own.shape[1] if target.matrices else 0
        data = lightgbm.Dataset(
            np.concatenate([self._table(one, of_target) for one, of_target in groups]),
            np.concatenate([_grades(one.seconds) for one, _ in groups]),
            group=[len(one.seconds) for one, _ in groups],
        )
        self._trees: Any = lightgbm.train({**_SETTINGS, "seed": seed}, data, num_boost_round=_ROUNDS)

    def score(self, matrix: MatrixSamples) -> NDArray[np.float64]:
        """Score configs of the target platform."""
        return -np.asarray(self._trees.predict(self._table(matrix, True), num_threads=1), np.float64)

    def _table(self, one: MatrixSamples, of_target: bool) -> NDArray[np.float64]:
        rows = len(one.seconds)
        absent = np.full((rows, self._other if of_target else self._own), np.nan)
        own = (one.own, absent) if of_target else (absent, one.own)
        statistics = np.broadcast_to(one.statistics, (rows, one.statistics.size))
        return np.concatenate([statistics, one.common, *own, np.full((rows, 1), float(of_target))], axis=1)


def _grades(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    grades: NDArray[np.int64] = np.floor(seconds.min() / seconds * (_GRADES - 1)).astype(np.int64)
    return grades


def _numbers(one: MatrixSamples) -> NDArray[np.float32]:
    """Give what identifies each config, (n, numbers) float32."""
    return np.concatenate([one.common, one.own], axis=1)
