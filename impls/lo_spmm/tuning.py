"""Ways of choosing one of the tile sizes that pass: LO-SpMM's, its rivals' and ours, over the same kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from spmark.impls.core.interfaces import Candidate, Config, Search
from spmark.impls.core.machine import allowed_cores
from spmark.impls.lo_spmm.estimate import estimate
from spmark.impls.lo_spmm.rank import RankModel, features_of
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import by_turns

KernelKey = tuple[int, int, int]
"""M1, the columns of a thread and the parts of A's columns: one kernel serves all candidates that share these."""
RANKED = 10
"""Candidates that a rank model leaves (sections 3.5 and 7)."""
SAMPLED = 4
"""`Chooser.SAMPLED` takes one in so many pairs of M1 and columns of a thread."""
KERNELS = 4
"""Kernels that `Chooser.NEAR` assembles."""
MANY_PRODUCTS = 200_000
"""Non-zeros beyond which `Chooser.NEAR` assembles one kernel less: code takes most seconds of such a build."""


class Chooser(StrEnum):
    """Ways of choosing a tile size."""

    ESTIMATE = "estimate"
    """Ours: the least `spmark.impls.lo_spmm.estimate.estimate`; nothing is run."""
    NEAR = "near"
    """Ours: the real kernels of the pairs of M1 and columns of a thread that the estimate prefers, at every N1."""
    EXHAUSTIVE = "exhaustive"
    """Every candidate's real kernel, as SparTA does."""
    SAMPLED = "sampled"
    """Every candidate of one kernel in `SAMPLED`: where `EXHAUSTIVE` takes too long, its cost is extrapolated from the
    cost of these candidates."""
    EC_SPMM = "ec_spmm"
    """The real kernels of the rank model's best, as EC-SpMM does."""
    PAPER = "paper"
    """Every candidate's proxy: LO-SpMM as published."""
    PAPER_RANK = "paper_rank"
    """The proxies of the rank model's best: LO-SpMM-Rank as published."""

    @property
    def ranks(self) -> bool:
        """Whether a rank model is asked."""
        return self in (Chooser.EC_SPMM, Chooser.PAPER_RANK)

    @property
    def by_proxies(self) -> bool:
        """Whether proxies run instead of kernels."""
        return self in (Chooser.PAPER, Chooser.PAPER_RANK)


class ChosenTile(NamedTuple):
    """The chosen tile size, and the search that chose it."""

    size: TileSize
    record: Search
    launched: Any = None
    """The candidate as the race ran it; None where nothing was run."""


def choose(
    space: TileSpace, mode: Chooser, race: Race[Any] | None = None, model: RankModel | None = None
) -> ChosenTile:
    """Choose among the survivors of the constraints.

    Parameters
    ----------
    space : TileSpace
        Space of `spmark.impls.lo_spmm.search.explore`.
    mode : Chooser
    race : Race, optional
        Race of the configs of `config_of`, for the modes that run candidates; not needed for one candidate.
    model : RankModel, optional
        Model of the modes that rank.

    Raises
    ------
    BuildError
        No candidate could be run; the error has the reasons.
    """
    sizes = space.survivors.sizes
    if model is not None:
        scores = model.trees.score(features_of(space, sizes)).tolist()
    else:
        scores = [estimate(space, size) for size in sizes]
    predicted = dict(zip(sizes, scores, strict=True))
    left = sorted(_looked_at(mode, predicted, space.problem.matrix.nnz), key=predicted.__getitem__)
    size, record, launched = left[0], Search(candidates=0), None  # the race takes the first of candidates that tie
    if race is not None and len(left) > 1:
        by_turns(race, [list(map(config_of, together)) for together in by_kernel(left)])
        config, launched = race.finish()
        size, record = TileSize(**config), race.describe(len(allowed_cores()))
    raced = {TileSize(**one.config): one for one in record.seen}
    seen = [replace(raced.get(one) or Candidate(config_of(one)), predicted=score) for one, score in predicted.items()]
    record = replace(record, candidates=space.considered, seen=tuple(seen), eligible=len(seen))
    return ChosenTile(size, record, launched)


def _looked_at(mode: Chooser, predicted: Mapping[TileSize, float], nnz: int) -> list[TileSize]:
    """Give the candidates that a mode compares."""
    if mode.ranks:
        return sorted(predicted, key=predicted.__getitem__)[:RANKED]
    if mode is Chooser.NEAR:
        return _nearest(predicted, KERNELS if nnz <= MANY_PRODUCTS else KERNELS - 1)
    return _sampled(list(predicted)) if mode is Chooser.SAMPLED else list(predicted)


def _sampled(sizes: Sequence[TileSize]) -> list[TileSize]:
    """Give the candidates of every `SAMPLED`-th kernel, beginning in the middle of the first `SAMPLED`."""
    kernels = sorted({kernel_of(size) for size in sizes})
    kept = set(kernels[min(SAMPLED // 2, len(kernels) - 1) :: SAMPLED])
    return [size for size in sizes if kernel_of(size) in kept]


def _nearest(predicted: Mapping[TileSize, float], most: int) -> list[TileSize]:
    """Give every candidate of the kernels whose best estimates are least, among them a kernel of uncut columns.

    The cost of adding parts is the estimate's least certain term.
    """
    ordered = list(dict.fromkeys(kernel_of(size) for size in sorted(predicted, key=predicted.__getitem__)))
    kept = ordered[:most]
    whole = [kernel for kernel in ordered if kernel[-1] == 1]
    if whole and not set(whole) & set(kept):
        kept[-1] = whole[0]
    return [size for size in predicted if kernel_of(size) in kept]


def kernel_of(size: TileSize) -> KernelKey:
    """Give the key of a candidate's kernel."""
    return size.tile_rows, size.cpt, size.split


def by_kernel(sizes: Iterable[TileSize]) -> list[list[TileSize]]:
    """Group candidates that one kernel serves; kernels and candidates stay in the order in which they come."""
    groups: dict[KernelKey, list[TileSize]] = {}
    for size in sizes:
        groups.setdefault(kernel_of(size), []).append(size)
    return list(groups.values())


def config_of(size: TileSize) -> Config:
    """Give the config by which a race knows a candidate."""
    return dict(vars(size))
