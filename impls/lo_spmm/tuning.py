"""How one of the tile sizes that are left is chosen: LO-SpMM's way, its rivals' and ours, over the same kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np

from spmark.impls.core.errors import BuildError, SpmarkError
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.constraints import Survivors
from spmark.impls.lo_spmm.rank import RankModel
from spmark.impls.lo_spmm.search import Dealt, Space
from spmark.impls.lo_spmm.space import TileSize

SAMPLES = 5
"""Of every candidate that is run."""
RANKED = 10
"""Candidates that a rank model leaves (sections 3.5 and 7)."""
SAMPLED = 4
"""Of `Mode.SAMPLED`: one in so many pairs of M1 and columns of a thread."""
KERNELS = 4
"""That `Mode.NEAR` assembles."""
MANY_PRODUCTS = 200_000
"""Non-zeros beyond which it assembles one less: code takes most of the seconds of such a build."""
HOPELESS = 1.6
"""Over the least estimate: kernels whose own least is beyond it have no proxy. Of 16 layers of which an H200 measured
all candidates, the best kernel's was within 1.2."""
FINALISTS = 8
"""Candidates that are measured again, side by side, before one is taken."""
FINAL_SAMPLES = 15


class Mode(StrEnum):
    """What chooses."""

    ESTIMATE = "estimate"
    """Ours: the least `spmark.impls.lo_spmm.select.estimate`; nothing is run."""
    NEAR = "near"
    """Ours: the real kernels of the pairs of M1 and columns of a thread that the estimate prefers, at every N1."""
    EXHAUSTIVE = "exhaustive"
    """Every candidate's real kernel, as SparTA does."""
    SAMPLED = "sampled"
    """Every candidate of one kernel in `SAMPLED`: what `EXHAUSTIVE` would cost where it cannot be waited for is
    extrapolated from what one candidate of these took."""
    EC_SPMM = "ec_spmm"
    """The real kernels of the rank model's best, as EC-SpMM does."""
    LO_SPMM = "lo_spmm"
    """Every candidate's proxy, but for kernels that the estimate sees no hope for."""
    LO_SPMM_RANK = "lo_spmm_rank"
    """The proxies of the rank model's best."""

    @property
    def runs(self) -> bool:
        """Whether candidates are run on the device."""
        return self is not Mode.ESTIMATE

    @property
    def ranks(self) -> bool:
        """Whether a rank model is asked."""
        return self in (Mode.EC_SPMM, Mode.LO_SPMM_RANK)

    @property
    def by_proxies(self) -> bool:
        """Whether what is run are proxies."""
        return self in (Mode.LO_SPMM, Mode.LO_SPMM_RANK)

    @property
    def splits(self) -> bool:
        """Whether columns of A are cut where nothing is pinned: the papers' ways do not know of it."""
        return self in (Mode.ESTIMATE, Mode.NEAR)


class Runner(Protocol):
    """Compiles and times candidates."""

    compile_s: float
    """Seconds so far in which candidates were compiled, and nothing else was done."""

    def prepare(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> None:
        """Compile what several groups of candidates will need, side by side; what fails is told by `samples_us`."""
        ...

    def count_kernels(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> int:
        """Give how many kernels `prepare` and `samples_us` compile for groups: C++ one for each size of a block."""
        ...

    def samples_us(
        self, sizes: Sequence[TileSize], proxies: bool, samples: int = SAMPLES
    ) -> Mapping[TileSize, list[float]]:
        """Give the times of candidates, by turns, and of each so many.

        Raises
        ------
        SpmarkError
            None of them can be built.
        """
        ...


@dataclass(frozen=True, eq=False)
class Found:
    """What was chosen and seen."""

    size: TileSize
    dealt: Dealt
    survivors: Survivors
    record: Search


class Spent(NamedTuple):
    """What running candidates took."""

    compiled: int = 0
    measured: int = 0
    compile_s: float = 0.0
    run_s: float = 0.0


def choose(space: Space, mode: Mode, runner: Runner | None = None, model: RankModel | None = None) -> Found:
    """Choose among the survivors of the constraints.

    Parameters
    ----------
    space : Space
        Of `spmark.impls.lo_spmm.search.explore`.
    mode : Mode
    runner : Runner, optional
        For the modes that run candidates; with one candidate it is not needed.
    model : RankModel, optional
        For the modes that rank.

    Raises
    ------
    BuildError
        No candidate could be run; carries the reasons.
    """
    sizes = space.survivors.sizes
    if model is not None and mode.ranks:
        predicted = dict(zip(sizes, model.score(np.stack([space.features(size) for size in sizes])), strict=True))
        left = sorted(sizes, key=predicted.__getitem__)[:RANKED]
    else:
        predicted = {size: space.cycles(size) for size in sizes}
        left = _looked_at(mode, predicted, space.problem.matrix.nnz)
    if not mode.runs or len(left) == 1 or runner is None:
        best = min(left, key=predicted.__getitem__)
        return _found(space, best, [_candidate(size, predicted[size]) for size in sizes])
    ordered = sorted(left, key=lambda size: (kernel_of(size), size))
    groups = [list(group) for _, group in groupby(ordered, key=kernel_of)]
    started, compiled_before = perf_counter(), runner.compile_s
    samples, reasons = _run(groups, runner, mode.by_proxies)
    finals = _finals(samples, runner, mode.by_proxies)
    samples |= finals
    compile_s = runner.compile_s - compiled_before
    run_s = perf_counter() - started - compile_s
    if not samples:
        raise BuildError("no candidate of the search could be used: " + "; ".join(dict.fromkeys(reasons.values())))
    best = min(finals or samples, key=lambda size: float(np.median(samples[size])))
    seen = [_candidate(size, predicted[size], samples.get(size, ()), reasons.get(size, "")) for size in sizes]
    compiled = runner.count_kernels(groups, mode.by_proxies)
    return _found(space, best, seen, Spent(compiled, len(samples), compile_s, run_s))


def promising(predicted: Mapping[TileSize, float]) -> list[TileSize]:
    """Give every candidate of the kernels whose least estimate is at most `HOPELESS` times the least of all."""
    least: dict[tuple[int, int, int], float] = {}
    for size, estimate in predicted.items():
        least[kernel_of(size)] = min(estimate, least.get(kernel_of(size), estimate))
    bound = HOPELESS * min(least.values(), default=0.0)
    return [size for size in predicted if least[kernel_of(size)] <= bound]


def _looked_at(mode: Mode, predicted: Mapping[TileSize, float], nnz: int) -> list[TileSize]:
    """Give what a mode that does not rank compares."""
    match mode:
        case Mode.NEAR:
            return _nearest(predicted, KERNELS if nnz <= MANY_PRODUCTS else KERNELS - 1)
        case Mode.LO_SPMM:
            return promising(predicted)
        case Mode.SAMPLED:
            return _sampled(list(predicted))
        case _:
            return list(predicted)


def _sampled(sizes: Sequence[TileSize]) -> list[TileSize]:
    """Give the candidates of one in `SAMPLED` kernels, of all columns of a thread, from the middle of the first."""
    kernels = sorted({kernel_of(size) for size in sizes})
    kept = set(kernels[min(SAMPLED // 2, len(kernels) - 1) :: SAMPLED])
    return [size for size in sizes if kernel_of(size) in kept]


def _nearest(predicted: Mapping[TileSize, float], most: int) -> list[TileSize]:
    """Give every candidate of the kernels whose best estimates are least, among them one of uncut columns.

    What adding parts costs is the estimate's least certain term.
    """
    ordered = list(dict.fromkeys(kernel_of(size) for size in sorted(predicted, key=predicted.__getitem__)))
    kept = ordered[:most]
    whole = [kernel for kernel in ordered if kernel[-1] == 1]
    if whole and not set(whole) & set(kept):
        kept[-1] = whole[0]
    return [size for size in predicted if kernel_of(size) in kept]


def _run(
    groups: Sequence[Sequence[TileSize]], runner: Runner, proxies: bool
) -> tuple[dict[TileSize, list[float]], dict[TileSize, str]]:
    samples: dict[TileSize, list[float]] = {}
    reasons: dict[TileSize, str] = {}
    runner.prepare(groups, proxies)
    for together in groups:
        try:
            samples |= runner.samples_us(together, proxies)
        except (SpmarkError, MemoryError) as error:
            reasons |= dict.fromkeys(together, str(error) or type(error).__name__)
    return samples, reasons


def _finals(samples: Mapping[TileSize, list[float]], runner: Runner, proxies: bool) -> Mapping[TileSize, list[float]]:
    """Measure the fastest again: of hundreds of medians of a few samples the least is mostly luck.

    They take turns, so that none runs after itself and finds its code in caches.
    """
    fastest = sorted(samples, key=lambda size: float(np.median(samples[size])))[:FINALISTS]
    if len(fastest) < 2:
        return {}
    with suppress(SpmarkError, MemoryError):
        return runner.samples_us(fastest, proxies, FINAL_SAMPLES)
    return {}


def kernel_of(size: TileSize) -> tuple[int, int, int]:
    """Give what candidates share that one kernel serves: M1, the columns of a thread and the parts of A's columns."""
    return size.tile_rows, size.cpt, size.split


def _candidate(size: TileSize, predicted: float, samples: Sequence[float] = (), reason: str = "") -> Candidate:
    names = ("tile_rows", "threads", "cpt", "tiles_per_block", "split")
    return Candidate({name: getattr(size, name) for name in names}, float(predicted), tuple(samples), reason)


def _found(space: Space, size: TileSize, seen: Sequence[Candidate], spent: Spent | None = None) -> Found:
    spent = spent or Spent()
    record = Search(
        space.considered,
        spent.compiled,
        spent.measured,
        cores() if spent.compiled else 1,
        tuple(seen),
        len(space.survivors.sizes),
        spent.compile_s,
        spent.run_s,
    )
    return Found(size, space.dealt(size.tile_rows, size.split), space.survivors, record)
