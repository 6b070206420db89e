"""Cost models replayed over recorded searches: scores for the configs that were measured, without a GPU.

Configs come from the side files of searches. Where a search measured nothing, the cases of one problem that pin one
implementation in different ways are its configs: each was measured by itself. Where a machine searched a case
several times, the last search counts. Samples of ``spmark study collect`` are configs as well, whatever their platform.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.impls.core.errors import RecordError, SpmarkError, SweepError
from spmark.impls.core.interfaces import CostModel
from spmark.impls.core.problem import Csr, Problem
from spmark.impls.core.untrusted import reading
from spmark.impls.table import IMPLEMENTATIONS, PLATFORMS, cost_model, cost_models, create, find_platform
from spmark.impls.tuning.space import key_of
from spmark.records.schema import CandidateRow, Measurement, SeenConfig
from spmark.report.analysis.replay import judge
from spmark.report.candidates import absence, absent_candidates, read_seen
from spmark.suite.plan.plan import select
from spmark.suite.run.provenance import read_batches
from spmark.suite.study.collected import LeftOut, Recorded, Searched, holds_samples, read_samples

RECORDED: Final = "recorded"
"""The model whose scores stand in the side files."""
RANDOM: Final = "random"
"""The model that knows nothing, which every other model is compared with."""
_log = logging.getLogger(__name__)
_Key = tuple[str, str, str]
"""Case id, version of the implementation, and environment."""
_Place = tuple[str, str, str]
"""Case id, pattern, and machine."""


@dataclass(eq=False)
class Replayed:
    """The outcome of a replay."""

    scored: list[tuple[Searched, NDArray[np.float64]]] = field(default_factory=list)
    """Problems with the scores of their measured configs; NaN where the model knows nothing of one."""
    unscored: list[Searched] = field(default_factory=list)
    """Problems that the model cannot order."""
    left_out: list[LeftOut] = field(default_factory=list)


def replay(paths: Sequence[Path], model: str, seed: int = 0, only: Sequence[str] = ()) -> Replayed:
    """Score the measured configs of recorded searches.

    Parameters
    ----------
    paths : sequence of Path
        Records as `spmark.report.records.record_files` finds them, with their side files; or files of collected
        samples, or folders that hold some.
    model : str
        `RECORDED`, `RANDOM`, or a cost model of the implementations (`spmark.impls.table.cost_models`), which scores
        anew: the matrix is loaded from its source.
    seed : int
        Of `RANDOM`.
    only : sequence of str
        Filters of cases (`spmark.suite.plan.plan.select`).

    Raises
    ------
    RecordError
        There are no records, what all searches saw is published but not there, or a file cannot be read.
    DatasetError
        Samples of one path are of several platforms, machines or versions of a space.
    SweepError
        No implementation or platform of these records has the model, or a filter leaves no case.
    """
    replayed = Replayed()
    collected = [path for path in paths if holds_samples(path)]
    records = [path for path in paths if path not in collected]
    samples = read_samples(collected, replayed.left_out)
    searched = [*_read(records, model, replayed.left_out, {one.case.implementation for one in samples}), *samples]
    if absent := absent_candidates(records):
        if not searched:
            raise RecordError(absence(absent))
        _log.warning("%s", absence(absent))
    if only:
        kept = {id(case) for case in select([one.case for one in searched], only)}
        searched = [one for one in searched if id(one.case) in kept]
        replayed.left_out.clear()  # a filter knows cases with measured configs only
    scorer = _Scorer(model, seed)
    for one in sorted(searched, key=lambda one: (one.case.matrix.id, one.case.seed)):
        try:
            replayed.scored.append((one, scorer.scores(one)))
        except _CannotScore as why:
            replayed.unscored.append(one)
            replayed.left_out.append(LeftOut(one.case_id, why.reason, why.detail))
    return replayed


def judged(replayed: Replayed) -> pd.DataFrame:
    """Judge how a model ordered the configs of each problem that it scored.

    Returns
    -------
    DataFrame
        One row for each problem: ``case_id, implementation, source, label, candidates`` (configs that were measured),
        and what `spmark.report.analysis.replay.judge` gives. `spmark.report.analysis.replay.summary` takes it.
    """
    return pd.DataFrame(
        {
            "case_id": one.case_id,
            "implementation": one.case.implementation,
            "source": one.case.matrix.source,
            "label": one.case.label,
            "candidates": len(one.measured),
            **judge(scores, one.times_us),
        }
        for one, scores in replayed.scored
    )


def _refuse_unknown(model: str, implementations: Iterable[str]) -> None:
    known = {RECORDED, RANDOM}.union(*map(_models, implementations))
    if model not in known:
        raise SweepError(f"expected a cost model out of {', '.join(sorted(known))} for these records, found {model!r}")


def _read(paths: Sequence[Path], model: str, left_out: list[LeftOut], others: set[str]) -> list[Recorded]:
    """Join records with what their searches saw; cases that cannot be replayed are added to ``left_out``.

    A model is refused that neither an implementation of the records nor one of ``others`` has.
    """
    seen = _read_side_files(paths)
    searches: dict[_Key, Recorded] = {}
    for path in paths:
        for batches in read_batches(path).values():
            for batch in batches:
                device = batch.environment.device if batch.environment else None
                for record in batch.records:
                    rows = seen.get(_key(record), [])
                    measured, failed = [row for row in rows if row.samples_us], [row for row in rows if row.reason]
                    searches[_key(record)] = Recorded.of(record.spec, record, device, measured, failed)
    _refuse_unknown(model, others.union(one.case.implementation for one in searches.values()))
    groups = _pinned_apart(
        [one for one in searches.values() if not one.measured and _has(one.case.implementation, model)]
    )
    grouped = {_key(one.record) for group in groups for one in group}
    for key in seen:
        if key not in searches:
            left_out.append(LeftOut(key[0], "there is no record of the case"))
        elif not searches[key].measured and key not in grouped:
            left_out.append(LeftOut(key[0], "its search measured nothing"))
    return [*_newest([one for one in searches.values() if one.measured], left_out), *map(_pool, groups)]


def _newest(searches: Sequence[Recorded], left_out: list[LeftOut]) -> list[Recorded]:
    """Give the last search of each case on each machine; all others are added to ``left_out``."""
    last = {_place(one): one for one in sorted(searches, key=lambda one: one.record.started_at)}
    older = [one for one in searches if last[_place(one)] is not one]
    left_out += [LeftOut(one.case_id, "a later search of the case counts") for one in older]
    return [one for one in searches if last[_place(one)] is one]


def _place(one: Recorded) -> _Place:
    return one.case_id, one.matrix_hash, one.machine


def _read_side_files(paths: Sequence[Path]) -> dict[_Key, list[CandidateRow]]:
    """Give the rows of each case, of a config the newest one; configs that were only scored are left out."""
    seen: dict[_Key, dict[str, CandidateRow]] = {}
    for row in read_seen(paths):
        rows = seen.setdefault(_key(row), {})
        if row.samples_us or row.reason:
            rows[key_of(row.config)] = row
    return {key: list(rows.values()) for key, rows in seen.items()}


def _pinned_apart(alone: Sequence[Recorded]) -> list[list[Recorded]]:
    """Group timed cases that pin one implementation for one problem in different ways."""
    groups: dict[tuple[object, ...], list[Recorded]] = {}
    for one in alone:
        case, record = one.case, one.record
        if case.config and record.samples_us:
            ours = case.implementation, record.spec.implementation_version, record.environment
            problem = case.op, case.scaled, case.matrix.model_dump_json(), case.seed, case.width, case.dtype
            groups.setdefault((*ours, *problem), []).append(one)
    return [group for group in groups.values() if len(group) > 1]


def _pool(group: Sequence[Recorded]) -> Recorded:
    """Make one search of several cases; the search pins the tunables that all cases pin alike."""
    first = group[0]
    pins = [one.case.config for one in group]
    shared = {name: value for name, value in pins[0].items() if all(pin.get(name) == value for pin in pins)}
    rows = {
        key_of(one.record.config): CandidateRow.of(
            one.record, SeenConfig(config=one.record.config, samples_us=one.record.samples_us)
        )
        for one in group
    }
    return Recorded.of(
        first.case.model_copy(update={"config": shared}), first.record, first.device, list(rows.values())
    )


def _has(implementation: str, model: str) -> bool:
    """Tell whether an implementation has the model; for `RANDOM`, whether it has any model to compare with."""
    known = _models(implementation)
    return model in known or (model == RANDOM and bool(known))


def _models(name: str) -> Mapping[str, str]:
    """Give the cost models of an implementation or of a platform; none of a name that is unknown."""
    return cost_models(name) if name in (*IMPLEMENTATIONS, *PLATFORMS) else {}


def _key(row: Measurement | CandidateRow) -> _Key:
    version = row.spec.implementation_version if isinstance(row, Measurement) else row.implementation_version
    return row.case_id, version, row.environment


@dataclass
class _CannotScore(Exception):
    reason: str
    detail: str = ""


class _Scorer:
    """Scores problem after problem by one model; the last matrix is kept."""

    def __init__(self, model: str, seed: int) -> None:
        self._model, self._seed, self._cache = model, seed, Cache.default()
        self._last: tuple[object, Csr] | None = None

    def scores(self, one: Searched) -> NDArray[np.float64]:
        """Give the scores of the measured configs, (len(measured),) float64.

        Raises
        ------
        _CannotScore
            There are too few configs, no model, no matrix or no scores; the message says which.
        """
        if len(one.measured) < 2:
            raise _CannotScore("fewer than two of its configs were measured")
        if self._model == RANDOM:
            digest = hashlib.sha256(one.case_id.encode()).digest()
            return np.random.default_rng([self._seed, *digest]).random(len(one.measured))
        if self._model == RECORDED:
            told = [math.nan if row.predicted is None else row.predicted for row in one.measured]
            scores, reason = np.array(told, np.float64), "its search predicted nothing"
        else:
            scores, reason = self._scored_anew(one), "the model knows none of its configs"
        if np.isnan(scores).all():
            raise _CannotScore(reason)
        if np.unique(scores).size == 1:
            raise _CannotScore("all of its configs have the same score")
        return scores

    def _scored_anew(self, one: Searched) -> NDArray[np.float64]:
        if not _has(one.case.implementation, self._model):
            raise _CannotScore(f"{one.case.implementation} has no cost model {self._model}")
        if one.outdated:
            raise _CannotScore(one.outdated)
        if isinstance(one, Recorded) and one.device is None:
            raise _CannotScore("its environment is not recorded")
        problem = self._problem(one)
        try:
            with reading(one.case_id, f"configs that {self._model} can score", SweepError):
                return self._made(one).score(problem, [row.config for row in one.measured])
        except SpmarkError as error:
            raise _CannotScore("the model refuses it", str(error)) from error

    def _made(self, one: Searched) -> CostModel:
        name = one.case.implementation
        if isinstance(one, Recorded):
            return cost_model(create(name, one.case.config), self._model, one.device)
        return cost_model(find_platform(name), self._model, None)

    def _problem(self, one: Searched) -> Problem:
        case = one.case
        key = case.matrix.model_dump_json(), case.seed
        try:
            if self._last is None or self._last[0] != key:
                self._last = None
                self._last = key, load_matrix(case.matrix, self._cache, case.seed).csr
            matrix = self._last[1]
            if matrix.hash != one.matrix_hash:
                raise _CannotScore("its source gives another matrix today", case.matrix.id)
            return Problem(case.op, matrix, case.width, case.dtype, case.scaled)
        except SpmarkError as error:
            raise _CannotScore("its matrix cannot be loaded", str(error)) from error
