"""``spmark study collect``: times of uniformly drawn configs of a platform, to train and judge cost models.

A row holds all configs of one problem, and is on disk before the next problem begins.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.origins import oldest_id
from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import RecordError, SpmarkError, SweepError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.machine import allowed_cores
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.table import find_platform
from spmark.impls.tuning.platform import Platform
from spmark.impls.tuning.space import key_of
from spmark.records.rowfile import read_rows
from spmark.records.schema import CaseSpec
from spmark.studies.collected import CollectedRow, SampledConfig
from spmark.studies.contracts import Outcome
from spmark.studies.rows import append_rows, reason_of
from spmark.suite.cli.console import tell
from spmark.suite.plan.papers import seconds
from spmark.suite.study.label import parsed_shard

SIMULATED = "simulated"
"""Stands for the machine where times are simulated."""
MOST_DRAWN = 10_000
"""Configs of a problem that are drawn at most: many may have no samples, such as those beyond a cap on storage."""
_log = logging.getLogger(__name__)


def collect_samples(
    name: str, sweep: str, overrides: Sequence[str], *, configs: int, budget: str, shard: str, out: Path, as_json: bool
) -> int:
    """Collect until every problem of the shard has a row or the time is up; gives how many are left.

    Raises
    ------
    SweepError
        The platform, the sweep, the budget or the shard is invalid.
    DeviceError
        The platform's device is missing.
    RecordError
        The rows cannot be written, or rows that were collected otherwise stand in their place.
    """
    ends = time.monotonic() + seconds(budget)
    platform: Platform = find_platform(name)
    asked = Sweep.load(sweep, overrides)
    number, parts = parsed_shard(shard)
    by_matrix = [list(cases) for _, cases in groupby(_problems(asked), lambda case: case.matrix)]
    mine = [case for cases in by_matrix[number - 1 :: parts] for case in cases]
    if not mine:
        raise SweepError(f"expected a matrix of shard {shard} in {asked.name}, found {len(by_matrix)} in all")
    collector = Collector(platform, _device(platform), configs)
    path = out / name / f"{asked.name}-{number:02d}-of-{parts:02d}.jsonl"
    # Other shards may have been cut otherwise.
    files = {path, *path.parent.glob(f"{asked.name}-*-of-*.jsonl")}
    done = set().union(*map(collector.done, sorted(files)))
    todo = [case for case in mine if done.isdisjoint(_keys(case))]
    made, _ = append_rows(path, ((case, case) for case in todo), collector.row, ends)
    answer = {"file": path, "rows": len(done) + made, "made": made, "left": len(todo) - made, "note": platform.note}
    line = f"{path}: {made} rows more, {len(todo) - made} of {len(mine)} left ({platform.note})"
    tell(Outcome(answer, line, left=len(todo) - made), as_json)
    return len(todo) - made


class Collector:
    """Takes the samples of one problem after the other; a matrix is loaded once for all of its problems.

    Parameters
    ----------
    platform : Platform
    device : DeviceSpec, optional
        None where times are simulated.
    configs : int
        Configs of a problem that are to have samples, beside the default. Those that cannot be built are kept with the
        reason, and others are drawn in their place.
    """

    def __init__(self, platform: Platform, device: DeviceSpec | None, configs: int) -> None:
        self._platform, self._device, self._configs = platform, device, configs
        self._matrix: tuple[str, Csr] | None = None

    def row(self, _: CaseSpec, case: CaseSpec) -> CollectedRow:
        """Measure the default and the drawn configs of a problem; a reason stands for what cannot be measured."""
        facts = self._facts(case)
        try:
            problem = Problem(case.op, self._load(case), case.width, case.dtype, scaled=case.scaled)
            configs = self._measured(problem, drawn_configs(self._platform, problem, oldest_id(case.matrix)))
        except SpmarkError as error:
            _log.warning("%s cannot be measured: %s", case.matrix.id, error)
            return CollectedRow(**facts, reason=reason_of(error))
        return CollectedRow(**facts, pattern_sha256=problem.matrix.hash, configs=tuple(configs))

    def _measured(self, problem: Problem, drawn: Sequence[Config]) -> list[SampledConfig]:
        """Measure configs in their order until as many as are wanted have samples, the default beside them."""
        found: list[SampledConfig] = []
        while missing := self._configs + 1 - sum(bool(one.chosen_by_us) for one in found):
            some = drawn[len(found) : len(found) + missing]
            if not some:
                break
            samples = self._platform.measure(problem, some, self._device)
            found += [
                SampledConfig.of(config, one.samples_us, one.reason) for config, one in zip(some, samples, strict=True)
            ]
        return found

    def done(self, path: Path) -> set[tuple[Any, ...]]:
        """Give the problems that have a row.

        Raises
        ------
        RecordError
            A row was collected on another machine, by other code, in another space or with another number of configs.
        """
        rows = list(read_rows(path, CollectedRow)) if path.exists() else []
        for row in rows:
            expected = self._origin(row)
            found = {name: getattr(row, name) for name in expected}
            if found != expected:
                raise RecordError(f"{path}: expected rows of {expected}, found {found}; name another folder with --out")
        return {(row.matrix, row.op, row.width, row.dtype) for row in rows}

    def _origin(self, of: CollectedRow | CaseSpec) -> dict[str, Any]:
        """Tell what all rows of a file and an operator agree on."""
        return {
            "platform": self._platform.name,
            "space_digest": self._platform.digest(Op(of.op)),
            "version": implementation_version(type(self._platform).__module__),
            "machine": self._device.name if self._device else SIMULATED,
            "cores": tuple(allowed_cores()) if self._platform.kind is DeviceKind.CPU else (),
            "wanted": self._configs,
        }

    def _facts(self, case: CaseSpec) -> dict[str, Any]:
        spec = case.matrix.model_dump(exclude={"folder", "origin", "aliases"}, exclude_defaults=True)
        problem = {"op": case.op, "matrix": case.matrix.id, "width": case.width, "dtype": case.dtype}
        return {**self._origin(case), **problem, "spec": spec, "note": self._platform.note}

    def _load(self, case: CaseSpec) -> Csr:
        if self._matrix is None or self._matrix[0] != case.matrix.id:
            self._matrix = None  # two large matrices might not fit
            self._matrix = case.matrix.id, load_matrix(case.matrix, Cache.default(), case.seed).csr
        return self._matrix[1]


def drawn_configs(platform: Platform, problem: Problem, matrix: str) -> list[Config]:
    """Give the platform's default, then other configs in the order of drawing.

    The draw follows from the matrix, the problem and the space alone, so that every method sees the same configs, and a
    killed collection goes on with the same.
    """
    words = (matrix, problem.matrix.hash, problem.op, problem.width, problem.dtype, platform.digest(problem.op))
    seed = int.from_bytes(hashlib.sha256("\0".join(map(str, words)).encode()).digest()[:8], "little")
    default = platform.default(problem)
    drawn = platform.space(problem).sample(seed, MOST_DRAWN)
    return [default, *(config for config in drawn if key_of(config) != key_of(default))]


def _problems(sweep: Sweep) -> Iterator[CaseSpec]:
    """Give a case for each problem of an `Op`, in the sweep's order; the platform stands in for implementations."""
    for _, cases in groupby((case for case in expand(sweep, DeviceKind.CPU) if case.op in tuple(Op)), _key):
        yield next(cases)


def _key(case: CaseSpec) -> tuple[Any, ...]:
    return case.matrix.id, case.op, case.width, case.dtype


def _keys(case: CaseSpec) -> Iterator[tuple[Any, ...]]:
    """Give the keys under which rows may know a problem."""
    matrix, *rest = _key(case)
    yield from ((one, *rest) for one in (matrix, *case.matrix.aliases))


def _device(platform: Platform) -> DeviceSpec | None:
    from spmark.impls.runtime.device import calibrated, find

    if platform.kind is None:
        return None
    found = find(platform.kind)
    return calibrated(found) if platform.kind is DeviceKind.CUDA else found
