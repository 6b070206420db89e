"""The autotuner: formats and schedules measured on the device, the best kept, all of them told.

SparseTIR searches c and k over small sets and measures every candidate (Ye et al., ASPLOS 2023, section 4.2.1). Here
the schedule is searched as well, one axis after the other: the tile first, since it decides most, then the width of the
last bucket, the column partitions and the order of blocks, and the tile once more. An axis ends early where two values
in a row are worse by a tenth.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import BuildError, SpmarkError
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.runtime.compile import cache_folder

PARTITIONS = (1, 2, 4, 8, 16)
"""c of the paper's search."""
MAX_WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""2^k of the sweep; the paper's rule ceil(log2(nnz / I)) is tried first."""
TOGETHER = (64, 128, 32)
"""Widths from which a block takes a row together."""
_WORSE = 1.1
Config = dict[str, Any]
Measure = Callable[[Config], list[float]]
"""Builds, checks and times a config, microseconds from cold caches; raises `SpmarkError` or MemoryError instead."""


@dataclass
class Tuner:
    """Measures configs once each and remembers everything.

    A config that does not build, does not fit or gives a wrong result is a candidate with a reason, never the best.
    """

    measure: Measure
    seen: dict[str, Candidate] = field(default_factory=dict)

    def time_us(self, config: Config) -> float:
        """Give the median of a config, infinity where it failed."""
        key = json.dumps(config, sort_keys=True)
        if key not in self.seen:
            try:
                self.seen[key] = Candidate(dict(config), samples_us=tuple(self.measure(config)))
            except (SpmarkError, MemoryError) as error:
                self.seen[key] = Candidate(dict(config), reason=str(error) or type(error).__name__)
        samples = self.seen[key].samples_us
        return float(np.median(samples)) if samples else float("inf")

    def along(self, config: Config, axis: str, values: Iterator[Any] | tuple[Any, ...]) -> Config:
        """Give ``config`` with the best value of one axis; two values in a row that are worse by a tenth end it."""
        best, best_us, worse = config, self.time_us(config), 0
        for value in values:
            candidate = {**config, axis: value}
            if candidate == config:
                continue
            found = self.time_us(candidate)
            if found < best_us:
                best, best_us, worse = candidate, found, 0
            elif found > _WORSE * best_us:
                worse += 1
                if worse == 2:
                    break
        return best


def rule_width(problem: Problem) -> int:
    """Give 2^k by the paper's rule, k = ceil(log2(nnz / I))."""
    mean = problem.matrix.nnz / problem.matrix.num_rows
    return 1 << max(0, int(np.ceil(np.log2(max(mean, 1.0)))))


def tiles(problem: Problem, every_lanes: tuple[int, ...] = (4, 8, 16, 32)) -> list[tuple[int, int]]:
    """List (vector, lanes) that fit J: the widest loads that divide it, and half of them, over so many lanes."""
    most = 16 // problem.dtype.itemsize
    vectors = [v for v in (8, 4, 2, 1) if v <= most and problem.width % v == 0][:2]
    found = [(v, n) for v in vectors for n in every_lanes if v * n <= problem.width]
    return found or [(vectors[-1], every_lanes[0])]


def tune(problem: Problem, pinned: Mapping[str, Any], measure: Measure) -> tuple[Config, Tuner]:
    """Search the space around ``pinned``.

    Parameters
    ----------
    problem : Problem
    pinned : mapping
        ``c`` and ``max_width`` where they are not to be searched.
    measure : callable
        See `Measure`.

    Returns
    -------
    config : dict
        The best; its time is infinite if nothing could be built.
    tuner : Tuner
        With every candidate seen.
    """
    tuner = Tuner(measure)
    first = max(32, min(rule_width(problem), 512))
    start: Config = {"c": 1, "max_width": first, "work": 32, "threads": 128, "together": NEVER, "by_row": False}
    start |= dict(pinned)
    best = min(({**start, "vector": v, "lanes": n} for v, n in tiles(problem)), key=tuner.time_us)
    best = tuner.along(best, "work", (16, 64, 128))
    # Whether blocks take long rows together decides how wide the last bucket should be: both ways are followed.
    ways = [{**best, "together": together} for together in (NEVER, TOGETHER[0])]
    if "max_width" not in pinned:
        ruled = rule_width(problem)
        below = tuple(sorted((w for w in {*MAX_WIDTHS, ruled} if w < first), reverse=True))
        above = tuple(sorted(w for w in MAX_WIDTHS if w > first))
        ways = [tuner.along(way, "max_width", side) for way in ways for side in (below, above)]
    best = min(ways, key=tuner.time_us)
    if best["together"] != NEVER:
        best = tuner.along(best, "together", TOGETHER[1:])
    if "c" not in pinned:
        best = tuner.along(best, "c", PARTITIONS[1:])
    best = tuner.along(best, "by_row", (True,))
    best = tuner.along(best, "threads", (256,))
    best = min((best, *({**best, "vector": v, "lanes": n} for v, n in tiles(problem))), key=tuner.time_us)
    return tuner.along(best, "work", (16, 32, 64, 128)), tuner


def tune_sddmm(problem: Problem, measure: Measure) -> tuple[Config, Tuner]:
    """Measure the whole space of SDDMM: loads, lanes, non-zeros of a group, rows stored or searched.

    SparseTIR's space (section 4.2.2) with the number of groups of a block left to the kernel.

    Returns
    -------
    config, tuner
        As `tune`.
    """
    tuner = Tuner(measure)
    space = [
        {"vector": vector, "lanes": lanes, "batch": batch, "searched": searched}
        for vector, lanes in tiles(problem, (8, 16, 32))
        for batch in (2, 4)
        for searched in (False, True)
    ]
    return min(space, key=tuner.time_us), tuner


@dataclass(frozen=True)
class Remembered:
    """What a search found, kept on disk: its cost and its candidates are told again whenever it is used."""

    config: Config
    search_s: float
    seen: tuple[Candidate, ...]


class TuningCache:
    """One file for each problem, device and version of the code.

    Parameters
    ----------
    problem : Problem
    device : str
    pinned : mapping
    """

    def __init__(self, problem: Problem, device: str, pinned: Mapping[str, Any]) -> None:
        words = [problem.matrix.hash, str(problem.op), problem.width, str(problem.dtype), device, dict(pinned)]
        text = json.dumps([*words, problem.scaled, implementation_version("sparsetir")], sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        self.path: Path = cache_folder().parent / "tuning" / "sparsetir" / f"{name}.json"

    def read(self) -> Remembered | None:
        """Give what was found before; None where there is nothing that can be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads(self.path.read_text())
            seen = tuple(Candidate(c["config"], None, tuple(c["samples_us"]), c["reason"]) for c in facts["seen"])
            return Remembered(facts["config"], facts["search_s"], seen)
        return None

    def write(self, found: Remembered) -> None:
        """Keep it; a cache that cannot be written costs only time."""
        seen = [{"config": c.config, "samples_us": c.samples_us, "reason": c.reason} for c in found.seen]
        text = json.dumps({"config": found.config, "search_s": found.search_s, "seen": seen})
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_suffix(f".{perf_counter()}.tmp")
            partial.write_text(text)
            partial.replace(self.path)


def describe(seen: tuple[Candidate, ...]) -> Search:
    """Give the search's accounts."""
    measured = sum(1 for candidate in seen if candidate.samples_us)
    return Search(len(seen), compiled=measured, measured=measured, seen=seen)


def check_best(config: Config, tuner: Tuner) -> None:
    """Refuse a search in which no candidate worked.

    Raises
    ------
    BuildError
        Nothing could be built; carries the reasons.
    """
    if tuner.time_us(config) == float("inf"):
        reasons = dict.fromkeys(candidate.reason for candidate in tuner.seen.values())
        raise BuildError("no candidate of the search could be used: " + "; ".join(reasons))
