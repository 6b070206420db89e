"""The store of a loop nest's levels."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Held, StoreKind, Stores
from spmark.impls.formats.stores import word_of
from spmark.impls.taco_cpu.plan import TacoCpu
from spmark.impls.taco_cpu.space import nest_of
from spmark.impls.taco_cpu.storage import LevelFormat


class LevelStores:
    """One store: rows where no level pads, else blocks of the uncompressed levels."""

    def stores(self, how: TacoCpu, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Store A level by level, as a plan does."""
        splits = word_of(config, "isplit", how.name), word_of(config, "ksplit", how.name)
        nest = nest_of(problem.op, config)
        held = LevelFormat.from_csr(problem.matrix, nest.levels, nest.compressed, splits, how.most_bytes)
        places = held.entries[held.entries >= 0]
        kind = StoreKind.ROW if held.stored == places.size else StoreKind.BLOCK
        return Stores.of(problem.matrix.nnz, [Held(kind, f"levels {config['formats']}", held.stored, places)])
