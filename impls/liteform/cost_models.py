"""LiteForm's cost of bucket widths as a cost model of configs.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 5.3.
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
from spmark.impls.liteform.cost import capped, power_of
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
