"""Cost models of configs by which LO-SpMM's searches prune and rank: counted cycles, rank model.

Lin et al., "LO-SpMM", ACM TACO 21(4), 2024, section 3.5; the cycles are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.estimate import estimate
from spmark.impls.lo_spmm.rank import features_of, find
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize

if TYPE_CHECKING:
    from spmark.impls.lo_spmm.plan import LoSpmm


class _OfTileSizes:
    """Base of the cost models: they look at tile sizes in the space of a problem.

    Parameters
    ----------
    how : LoSpmm
        Its order of rows, its ``prefetch`` and its rank model are used.
    device : DeviceSpec
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: LoSpmm, device: DeviceSpec) -> None:
        self._how, self._device = how, device

    def _seen(self, problem: Problem, configs: Sequence[Config]) -> tuple[TileSpace, list[TileSize]]:
        """Give the space, and the tile size of each config; configs of before columns were cut have one part."""
        space = TileSpace(problem, self._device, self._how)
        names = [one.name for one in fields(TileSize)]
        return space, [TileSize(**{name: int(one[name]) for name in names if name in one}) for one in configs]


class CountedCycles(_OfTileSizes):
    """`spmark.impls.lo_spmm.estimate.estimate`: cycles of the busiest multiprocessor, by counting."""

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every tile size, (len(configs),) float64 cycles. O(nnz log nnz) for each M1 among them."""
        space, sizes = self._seen(problem, configs)
        return np.array([estimate(space, size) for size in sizes], np.float64)


class RankTrees(_OfTileSizes):
    """The trees of section 3.5, whose scores have an order and no unit."""

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every tile size, (len(configs),) float64. O(nnz log nnz) for each M1 among them.

        Raises
        ------
        BuildError
            The rank model is missing or cannot be used.
        """
        space, sizes = self._seen(problem, configs)
        return find(self._how.model).trees.score(features_of(space, sizes))
