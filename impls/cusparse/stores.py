"""The stores of Blocked-ELL."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Stores
from spmark.impls.cusparse.blocks import blocked_ell
from spmark.impls.cusparse.plan import CuSparseBell
from spmark.impls.formats.stores import held_in_blocks, square_blocks


class BlockedEllStores:
    """Blocks, and the slots that fill up each block row."""

    def stores(self, how: CuSparseBell, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Cut into the blocks of a config and pad block rows."""
        held = square_blocks(how, problem, config)
        _, values = blocked_ell(held)
        return Stores.of(problem.matrix.nnz, [held_in_blocks(held)._replace(stored=values.size)])
