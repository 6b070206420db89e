"""The store of unrolled code: every non-zero is a literal; and what the estimate chooses."""

from __future__ import annotations

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Forecast, Held, StoreKind, Stores
from spmark.impls.lo_spmm.estimate import CYCLES_PER_S
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.tuning import Chooser, choose, config_of


class LiteralStores:
    """One store: a kernel's code holds the values and the offsets of all non-zeros."""

    def stores(self, how: LoSpmm, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Give one store of literals; the config decides in which function each stands."""
        nnz = problem.matrix.nnz
        return Stores.of(nnz, [Held(StoreKind.LITERAL, "literals in code", nnz, np.arange(nnz))])

    def forecast(self, how: LoSpmm, problem: Problem, device: DeviceSpec, budget_s: float) -> Forecast:
        """Take the tile size of the least estimate; nothing is compiled.

        Raises
        ------
        UnsupportedError
            A has no non-zeros, so that there is no tile to size.
        """
        if not problem.matrix.nnz:
            raise UnsupportedError("expected a matrix with non-zeros, whose tiles are sized, found none")
        pins = Pins(how.tile_rows, how.threads, how.cpt, how.tiles_per_block, how.prefetch, how.split)
        space = explore(problem, device, Reordering(how.order), pins)
        chosen = choose(space, Chooser.ESTIMATE, None, None)
        config = config_of(chosen.size) | {"mode": str(Chooser.ESTIMATE)}
        seconds = space.cycles(chosen.size) / CYCLES_PER_S
        return Forecast(config, self.stores(how, problem, device, config), "LO-SpMM's estimate by counting", seconds)
