"""What scores the configs of a matrix in a study beside a model, with the same samples and configs.

A ranker gives one score for each config of a matrix, (n,) float64, without a look at their times. Lower scores are
better for all, so that all are judged in one way: the best of the first k that are measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spmark.studies.dash.samples import MatrixSamples, SampleSet
from spmark.studies.orders import ranking_trees

_GRADES, _ROUNDS = 30, 200
Ranker = Callable[[MatrixSamples], NDArray[np.float64]]


def random_configs(seed: int) -> Ranker:
    """Rank at random; seed and the matrix's id decide the order."""

    def scores(one: MatrixSamples) -> NDArray[np.float64]:
        return np.random.default_rng([seed, *one.matrix.encode()]).permutation(len(one.seconds)).astype(np.float64)

    return scores


def best_on_target(samples: SampleSet) -> Ranker:
    """Rank as configs rank on the target platform's few training matrices.

    Configs are ordered by the mean logarithm of time over the best of the matrix. Matrices have other configs where a
    space is large: a config that no training matrix has stands behind the nearest one (L2 of the numbers) that has it.
    O(configs of a matrix times configs of all training matrices).

    Parameters
    ----------
    samples : SampleSet
        Of the target platform.
    """

    def numbers(one: MatrixSamples) -> NDArray[np.float64]:
        return np.concatenate([one.common, one.own], axis=1, dtype=np.float64)

    every = np.concatenate([numbers(one) for one in samples.matrices])
    gaps = np.concatenate([np.log(one.seconds / one.seconds.min()) for one in samples.matrices])
    _, first, of_sample = np.unique(every, axis=0, return_index=True, return_inverse=True)
    in_order = np.argsort(first)  # of configs that are equally near, the one that was met first counts
    known, means = every[first[in_order]], (np.bincount(of_sample, gaps) / np.bincount(of_sample))[in_order]

    def scores(matrix: MatrixSamples) -> NDArray[np.float64]:
        distances = np.square(numbers(matrix)[:, None, :] - known[None]).sum(2)
        order = np.lexsort((distances.min(1), means[distances.argmin(1)]))
        return np.argsort(order).astype(np.float64)

    return scores


def by_trees(target: SampleSet, source: SampleSet | None = None) -> Ranker:
    """Rank by LightGBM's lambdarank on a matrix's statistics and a config's numbers.

    Parameters
    ----------
    target : SampleSet
        Of the target platform.
    source : SampleSet, optional
        Of the source platform. Its own parameters, which the target lacks, are missing values, and vice versa; a
        further column says which platform a row is of.

    Raises
    ------
    UnsupportedError
        LightGBM is not installed.
    """
    lengths = [one.matrices[0].own.shape[1] if one else 0 for one in (target, source)]

    def table(one: MatrixSamples, of_target: bool) -> NDArray[np.float64]:
        rows = len(one.seconds)
        own = [np.full((rows, length), np.nan) for length in lengths]
        own[not of_target] = one.own
        statistics = np.broadcast_to(one.statistics, (rows, one.statistics.size))
        return np.concatenate([statistics, one.common, *own, np.full((rows, 1), float(of_target))], axis=1)

    tables = [(table(one, True), one.seconds) for one in target.matrices]
    tables += [(table(one, False), one.seconds) for one in (source.matrices if source else ())]
    trees = ranking_trees(tables, _GRADES, _ROUNDS, learning_rate=0.05, min_data_in_leaf=5)
    return lambda one: -np.asarray(trees.predict(table(one, True), num_threads=1), np.float64)
