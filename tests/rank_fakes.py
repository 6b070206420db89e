"""A rank model of one tree with two leaves, and a race whose times follow the estimate."""

from __future__ import annotations

from races import made_up_race

from spmark.impls.core.interfaces import Built, Config
from spmark.impls.lo_spmm.estimate import estimate
from spmark.impls.lo_spmm.rank import RankCard, RankModel, Trees
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.tuning.race import Race


def stump(feature: int, threshold: float) -> RankModel:
    """Prefer candidates whose feature lies above a threshold."""
    card = RankCard(gpu="fake-gpu", labels_sha256="0", groups=1, candidates=2, ranges={})
    trees = Trees(
        roots=(0,), feature=(feature, -1, -1), threshold=(threshold, -1.0, 1.0), left=(1, 0, 0), right=(2, 0, 0)
    )
    return RankModel(card=card, trees=trees)


def estimated_race(space: TileSpace) -> Race[Built]:
    """Time candidates by the estimate and their threads."""

    def cost(config: Config) -> float:
        size = TileSize(**config)
        return estimate(space, size) / 1755 + 0.001 * size.threads

    return made_up_race(cost)[0]
