"""A rank model of one tree with two leaves, and a device whose times follow the estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spmark.impls.core.errors import BuildError
from spmark.impls.lo_spmm.rank import Card, RankModel, Trees
from spmark.impls.lo_spmm.search import Space
from spmark.impls.lo_spmm.space import TileSize


def stump(feature: int, threshold: float) -> RankModel:
    """Prefer candidates whose feature lies above a threshold."""
    card = Card(gpu="fake-gpu", labels_sha256="0", groups=1, candidates=2, ranges={})
    trees = Trees(
        roots=(0,), feature=(feature, -1, -1), threshold=(threshold, -1.0, 1.0), left=(1, 0, 0), right=(2, 0, 0)
    )
    return RankModel(card=card, trees=trees)


class EstimatedDevice:
    """Times candidates by the estimate and their threads; kernels of one M1 may be broken."""

    def __init__(self, space: Space, broken: int = 0) -> None:
        self.space, self.broken = space, broken
        self.compile_s = 0.0

    def prepare(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> None:
        pass

    def count_kernels(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> int:
        return len(groups)

    def samples_us(self, sizes: Sequence[TileSize], proxies: bool, samples: int = 2) -> Mapping[TileSize, list[float]]:
        if sizes[0].tile_rows == self.broken:
            raise BuildError("broken")
        shorter = 0.5 if proxies else 1.0
        return {size: [shorter * (self.space.cycles(size) / 1755 + 0.001 * size.threads)] * samples for size in sizes}
