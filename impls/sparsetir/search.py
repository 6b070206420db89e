"""The autotuner: formats and schedules measured on the device, the best kept, all of them told.

SparseTIR searches c and k over small sets and measures every candidate (Ye et al., ASPLOS 2023, section 4.2.1). Here
the schedule is searched as well, one axis after the other: the tile first, since it decides most, then the width of the
last bucket, who takes long rows; from rows as they are and from an order that puts those together which share columns;
then the column partitions, and all once more. An axis ends early where two values in a row are clearly worse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import BuildError, SpmarkError
from spmark.impls.core.files import read_sealed, write_sealed
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.plainjson import parse_json
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.ell_buckets import LANES, NEVER
from spmark.impls.runtime.compile import cache_folder

PARTITIONS = (1, 2, 4, 8, 16)
"""c of the paper's search."""
MAX_WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""2^k of the sweep; that of the paper's rule ceil(log2(nnz / I)) is measured whether the sweep gets there or not."""
TOGETHER = (64, 128, 32)
"""Widths from which a block takes a row together."""
SPREAD = (32, 64, 128, NEVER)
"""Widths from which the groups of a warp share a row."""
WORK = (8, 16, 32, 64, 128)
"""Elements that a group takes."""
_LARGE = 4_000_000
_WORSE = 1.06
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
        """Give ``config`` with the best value of one axis; two values in a row that are clearly worse end it."""
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


def tiles(problem: Problem, every_lanes: tuple[int, ...] = LANES) -> list[tuple[int, int]]:
    """List (vector, lanes) that fit J: the widest loads that divide it, and half of them, over so many lanes."""
    most = 16 // problem.dtype.itemsize
    vectors = [v for v in (8, 4, 2, 1) if v <= most and problem.width % v == 0][:2]
    found = [(v, n) for v in vectors for n in every_lanes if v * n <= problem.width]
    return found or [(vectors[-1], every_lanes[0])]


def _is_large(problem: Problem) -> bool:
    """Tell whether reading B, not starting up, takes the time."""
    return problem.matrix.nnz * problem.width > _LARGE


def spmm_tiles(problem: Problem) -> list[Config]:
    """List the tiles of SpMM.

    Those of `tiles`, and two of the widest loads side by side where J has room for them. Narrower loads only pay where
    they give small problems more threads.
    """
    widest = tiles(problem)[0][0]
    found = [
        {"vector": v, "vectors": 1, "lanes": n} for v, n in tiles(problem) if v == widest or not _is_large(problem)
    ]
    room = problem.width // (2 * widest)
    return found + [{**one, "vectors": 2} for one in found if one["vector"] == widest and one["lanes"] <= room]


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
    widest = max(32, min(rule_width(problem), 512))
    start: Config = {"c": 1, "max_width": widest, "work": 32, "spread": 128, "together": NEVER, "threads": 128}
    start |= {"order": "width", **pinned, **spmm_tiles(problem)[0]}
    # What the order of rows changes, all else follows: where rows of B may meet in a cache, both are starts.
    square = problem.matrix.num_rows == problem.matrix.num_cols
    orders = ("width", "near") if square and _is_large(problem) else ("width",)
    best = min((_one_turn(problem, tuner, {**start, "order": order}, pinned) for order in orders), key=tuner.time_us)
    if "c" not in pinned:
        best = tuner.along(best, "c", PARTITIONS[1:])
    return _one_turn(problem, tuner, best, pinned), tuner


def _one_turn(problem: Problem, tuner: Tuner, best: Config, pinned: Mapping[str, Any]) -> Config:
    """Go along every axis once but the column partitions, which cost a conversion each."""
    best = min(({**best, "threads": 128, **tile} for tile in spmm_tiles(problem)), key=tuner.time_us)
    below, above = (tuple(w for w in WORK if w < best["work"]), tuple(w for w in WORK if w > best["work"]))
    best = tuner.along(tuner.along(best, "work", below[::-1]), "work", above)
    # Whether blocks take long rows together decides how wide the last bucket should be: both ways are followed.
    ways = [{**best, "together": together} for together in (NEVER, TOGETHER[0])]
    if "max_width" not in pinned:
        now, rule = best["max_width"], rule_width(problem)
        widths = sorted({*MAX_WIDTHS, rule})
        sides = tuple(w for w in widths[::-1] if w < now), tuple(w for w in widths if w > now)
        ways = [tuner.along(way, "max_width", side) for way in ways for side in sides]
        ways = [tuner.along(way, "max_width", (rule,)) for way in ways]
    best = min(ways, key=tuner.time_us)
    if best["together"] != NEVER:
        best = tuner.along(best, "together", TOGETHER[1:])
    best = tuner.along(best, "spread", SPREAD)
    best = tuner.along(best, "order", ("row",))
    return tuner.along(best, "threads", (256,) if best["vectors"] == 2 else ())


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
        with suppress(ValueError, KeyError, TypeError):
            facts = parse_json(read_sealed(self.path) or b"")
            seen = tuple(Candidate(c["config"], None, tuple(c["samples_us"]), c["reason"]) for c in facts["seen"])
            return Remembered(facts["config"], facts["search_s"], seen)
        return None

    def write(self, found: Remembered) -> None:
        """Keep it; a cache that cannot be written costs only time."""
        seen = [{"config": c.config, "samples_us": c.samples_us, "reason": c.reason} for c in found.seen]
        text = json.dumps({"config": found.config, "search_s": found.search_s, "seen": seen})
        write_sealed(self.path, text.encode())


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
