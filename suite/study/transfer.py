"""``spmark study train`` and ``transfer``: models that move from one platform to another, from collected samples."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import SpmarkError, SweepError
from spmark.impls.core.problem import Csr, Op
from spmark.studies.contracts import Outcome, StudyJob, TransferJob
from spmark.studies.table import find_contract
from spmark.suite.cli.console import console, say, tell
from spmark.suite.environment import commit
from spmark.suite.plan.papers import Collected, PaperStudy, seconds
from spmark.suite.study.collect import collect_samples
from spmark.suite.study.label import parsed_shard
from spmark.suite.study.train import labels_in


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What both command lines ask for; samples are files, or folders that hold some."""

    method: str
    source: Sequence[Path]
    target: Sequence[Path]
    source_matrices: int
    target_matrices: int
    op: str
    epochs: int
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class TransferRequest(_Asked):
    """What the command line of ``train`` asks for."""

    seed: int
    out: Path | None


@dataclass(frozen=True, kw_only=True)
class StudyRequest(_Asked):
    """What the command line of ``transfer`` asks for."""

    evaluation: Sequence[Path]
    methods: Sequence[str]
    seeds: int
    budget: str
    shard: str
    out: Path


def train_transfer(request: TransferRequest) -> None:
    """Train on samples of the source platform, then of the target platform, and write the model's file.

    Raises
    ------
    SweepError
        The method moves between no platforms, the operator is unknown, or there are no source files.
    DatasetError
        Samples are missing, broken or too few.
    UnsupportedError
        The library that trains is not installed.
    BuildError
        The model cannot be written.
    """
    transfer = find_contract("transfer", request.method)
    if not request.source:
        raise SweepError(f"train {request.method}: expected --source with samples of spmark study collect, found none")
    op = _op(request.op)
    screen = console(request.as_json)
    words = _words(request, {})
    words += [f"--op {request.op}", f"--seed {request.seed}", f"--epochs {request.epochs}"]
    job = TransferJob(
        source=_files(request.source),
        target=_files(request.target),
        source_matrices=request.source_matrices,
        target_matrices=request.target_matrices,
        op=op,
        load=_load,
        seed=request.seed,
        epochs=request.epochs,
        out=request.out,
        command=f"spmark study train {request.method} {' '.join(words)}",
        tell=lambda line: say(screen, escape(line)),
    )
    tell(transfer.train(job), request.as_json)


def study_transfer(request: StudyRequest) -> int:
    """Train and judge every method with every seed until all are done or the time is up; gives how many are left.

    Raises
    ------
    SweepError
        The method moves between no platforms, a compared method, the operator, the budget or the shard is invalid.
    DatasetError
        Samples are missing, broken or too few, or a matrix that judges is trained on.
    RecordError
        The facts cannot be written, or facts of other samples stand in their place.
    """
    ends = time.monotonic() + seconds(request.budget)
    transfer = find_contract("transfer", request.method)
    screen = console(request.as_json)
    words = [*_words(request, {"evaluation": request.evaluation}), f"--epochs {request.epochs}"]
    job = StudyJob(
        source=_files(request.source),
        target=_files(request.target),
        evaluation=_files(request.evaluation),
        source_matrices=request.source_matrices,
        target_matrices=request.target_matrices,
        methods=request.methods,
        op=_op(request.op) if request.op else None,
        seeds=request.seeds,
        epochs=request.epochs,
        ends=ends,
        load=_load,
        out=request.out,
        command=f"spmark study transfer {request.method} {' '.join(words)}",
        commit=commit(),
        tell=lambda line: say(screen, escape(line)),
        shard=parsed_shard(request.shard),
    )
    outcome: Outcome = transfer.study(job)
    tell(outcome, request.as_json)
    return outcome.left


def _op(name: str) -> Op:
    if name not in list(Op):
        raise SweepError(f"--op: expected one of {', '.join(Op)}, found {name!r}")
    return Op(name)


def _words(asked: _Asked, more: Mapping[str, Sequence[Path]]) -> list[str]:
    """Give the options that both command lines have, and those of ``more`` samples, without folders."""
    samples = {"source": asked.source, "target": asked.target, **more}
    words = [f"--{option} {path.name}" for option, paths in samples.items() for path in paths]
    return [*words, f"--source-matrices {asked.source_matrices}", f"--target-matrices {asked.target_matrices}"]


def _files(paths: Sequence[Path]) -> list[Path]:
    return [file for path in paths for file in labels_in(path)]


def _load(spec: Mapping[str, Any]) -> Csr:
    return load_matrix(MatrixSpec.model_validate(spec), Cache.default(), 0).csr


_LEAST_S = 1.0
"""Seconds that have to be left for another part to begin."""


@dataclass(frozen=True)
class StudyState:
    """How far the study of one target is."""

    target: str
    folder: Path
    """Of its facts."""
    left: int
    """Problems to collect, or trainings; 0 where the study is whole."""
    why: str = ""
    """Why the study cannot go on."""


def run_studies(study: PaperStudy, targets: list[str], folder: Path, ends: float, as_json: bool) -> list[StudyState]:
    """Run the study of each target until all are whole or the time is up.

    Parameters
    ----------
    study : PaperStudy
    targets : list of str
        Out of ``study.targets``.
    folder : Path
        For samples, and for facts and models of each target.
    ends : float
        Time of the monotonic clock, in seconds, after which no problem and no epoch begins.
    as_json : bool
        Standard output is for JSON: messages go to standard error.
    """
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        return [_run(study, target, folder, ends) for target in targets]


def _run(study: PaperStudy, target: str, folder: Path, ends: float) -> StudyState:
    facts = folder / "study" / target
    try:
        for platform, role, part in _parts(study, target):
            if left := _collect(study, platform, folder / "samples" / role, part, ends):
                return StudyState(target, facts, left)
        return StudyState(target, facts, _compare(study, target, folder / "samples", facts, ends))
    except SpmarkError as error:
        return StudyState(target, facts, 1, str(error))


def _parts(study: PaperStudy, target: str) -> Iterator[tuple[str, str, Collected]]:
    """Give the platform, the role and the problems of each collection that a study rests on."""
    yield study.source, "source", study.pretraining
    yield target, "target", study.fine_tuning
    yield target, "evaluation", study.evaluation


def _collect(study: PaperStudy, platform: str, out: Path, part: Collected, ends: float) -> int:
    """Collect samples; gives how many problems are left."""
    budget = _budget(ends)
    if not budget:
        return 1
    overrides = (f"ops={json.dumps(list(study.ops))}",)
    return collect_samples(
        platform, part.sweep, overrides, configs=study.configs, budget=budget, shard=part.shard, out=out, as_json=False
    )


def _compare(study: PaperStudy, target: str, samples: Path, out: Path, ends: float) -> int:
    """Train and judge; gives how many trainings are left."""
    budget = _budget(ends)
    if not budget:
        return 1
    return study_transfer(
        StudyRequest(
            method=study.method,
            source=[samples / "source" / study.source],
            target=[samples / "target" / target],
            evaluation=[samples / "evaluation" / target],
            source_matrices=study.source_matrices,
            target_matrices=study.target_matrices,
            methods=study.methods,
            op="",
            seeds=study.seeds,
            epochs=study.epochs,
            budget=budget,
            shard="1/1",
            out=out,
            as_json=False,
        )
    )


def _budget(ends: float) -> str:
    """Give the time that is left as options take it; empty where the time is up."""
    left_s = ends - time.monotonic()
    return f"{left_s:.0f}s" if left_s >= _LEAST_S else ""
