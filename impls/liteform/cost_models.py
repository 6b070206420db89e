"""LiteForm's cost of bucket widths and its predictors of classes, as cost models of configs.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, sections 5.1 to 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.cost import capped, power_of
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.predictor import find
from spmark.impls.liteform.schedule import table_for

if TYPE_CHECKING:
    from spmark.impls.liteform.plan import LiteForm


class BucketCost:
    """The cost over ``partitions`` and ``max_width``: the paper's, or by the weights of a GPU.

    Parameters
    ----------
    how : LiteForm
        Its fields ``cost``, ``order``, ``tail_in_last`` and ``thirds`` are read.
    device : DeviceSpec
        GPU whose weights are taken, if its table has weights.
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: LiteForm, device: DeviceSpec) -> None:
        self._how, self._table = how, table_for(device.name)

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64: the sum over its partitions, all capped at ``max_width``.

        NaN for a config without buckets. O(nnz) for each number of partitions.

        Raises
        ------
        ValueError
            A ``max_width`` is not a power of two of at most 1,024.
        """
        how, table = self._how, self._table
        order = how.ordered(problem, table)
        costs = cache(lambda partitions: how.costs_of(problem, table, order, partitions))
        scores = np.full(len(configs), np.nan)
        for number, config in enumerate(configs):
            if "max_width" in config:
                counts, of_cap = costs(int(config["partitions"]))
                scores[number] = capped(of_cap, counts, power_of(int(config["max_width"])))
        return scores


class ClassVotes:
    """Minus the probability of the class that a config belongs to: its format, and for CELL its partitions.

    Parameters
    ----------
    how : LiteForm
        Its ``model`` is asked.
    device : DeviceSpec
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: LiteForm, device: DeviceSpec) -> None:
        self._predictor = find(how.model)

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config by ``format`` (by default CELL) and ``partitions``, (len(configs),) float64.

        Where a feature is outside of the training range, CELL in one partition has probability 1, since
        `spmark.impls.liteform.compose.choose` takes it. O(I + trees depth).
        """
        features, predictor = Features.of(problem.matrix), self._predictor
        if predictor.outside(features, problem.width):
            cell, shares, classes = 1.0, np.ones(1), np.ones(1, np.int64)
        else:
            cell = predictor.share_of_cell(features, problem.width)
            shares = predictor.partitions.shares(features.partitions(problem.width))
            classes = predictor.partitions.classes.clip(max=problem.matrix.num_cols)

        def probability(config: Config) -> float:
            if config.get("format", StoredAs.CELL) != StoredAs.CELL:
                return 1 - cell
            return cell * float(shares[classes == int(config.get("partitions", 1))].sum())

        return -np.array([probability(config) for config in configs], np.float64)
