"""``spmark study train`` and ``transfer``: models that move from one platform to another, from collected samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.contracts import StudyJob, TransferJob, TransferLearning
from spmark.impls.core.errors import SweepError
from spmark.impls.core.problem import Csr, Op
from spmark.impls.table import find_contract
from spmark.suite.cli.console import console, say, tell
from spmark.suite.environment import commit
from spmark.suite.plan.papers import seconds
from spmark.suite.study.label import parsed_shard
from spmark.suite.study.train import labels_in


@dataclass(frozen=True)
class TransferRequest:
    """What the command line asks for; files of samples, or folders that hold some."""

    method: str
    source: Sequence[Path]
    target: Sequence[Path]
    held_out: Sequence[Path]
    source_matrices: int
    target_matrices: int
    op: str
    seed: int
    epochs: int
    out: Path | None
    as_json: bool
    model: str = ""
    featuriser: Path | None = None


@dataclass(frozen=True)
class StudyRequest:
    """What the command line asks for; files of samples, or folders that hold some."""

    method: str
    source: Sequence[Path]
    target: Sequence[Path]
    evaluation: Sequence[Path]
    source_matrices: int
    target_matrices: int
    methods: Sequence[str]
    op: str
    seeds: int
    epochs: int
    budget: str
    shard: str
    out: Path
    as_json: bool


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
    transfer: TransferLearning = find_contract("transfer", request.method)
    if not request.source:
        raise SweepError(f"train {request.method}: expected --source with samples of spmark study collect, found none")
    op = _op(request.op)
    screen = console(request.as_json)
    named = {"source": request.source, "target": request.target, "held-out": request.held_out}
    counts = {"source-matrices": request.source_matrices, "target-matrices": request.target_matrices}
    words = _words(named, counts)
    words += [f"--op {request.op}", f"--seed {request.seed}", f"--epochs {request.epochs}"]
    words += [f"--model {request.model}"] if request.model else []
    words += [f"--featuriser {request.featuriser.name}"] if request.featuriser else []
    job = TransferJob(
        source=_files(request.source),
        target=_files(request.target),
        held_out=_files(request.held_out),
        source_matrices=request.source_matrices,
        target_matrices=request.target_matrices,
        op=op,
        load=_load,
        seed=request.seed,
        epochs=request.epochs,
        out=request.out,
        command=f"spmark study train {request.method} {' '.join(words)}",
        tell=lambda line: say(screen, escape(line)),
        model=request.model,
        featuriser=request.featuriser,
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
    transfer: TransferLearning = find_contract("transfer", request.method)
    screen = console(request.as_json)
    named = {"source": request.source, "target": request.target, "evaluation": request.evaluation}
    counts = {"source-matrices": request.source_matrices, "target-matrices": request.target_matrices}
    words = [*_words(named, counts), f"--epochs {request.epochs}"]
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
    outcome = transfer.study(job)
    tell(outcome, request.as_json)
    return outcome.left


def _op(name: str) -> Op:
    if name not in list(Op):
        raise SweepError(f"--op: expected one of {', '.join(Op)}, found {name!r}")
    return Op(name)


def _words(named: Mapping[str, Sequence[Path]], counts: Mapping[str, int]) -> list[str]:
    """Give the options of a command line, without folders."""
    words = [f"--{option} {path.name}" for option, paths in named.items() for path in paths]
    return words + [f"--{option} {count}" for option, count in counts.items()]


def _files(paths: Sequence[Path]) -> list[Path]:
    return [file for path in paths for file in labels_in(path)]


def _load(spec: Mapping[str, Any]) -> Csr:
    return load_matrix(MatrixSpec.model_validate(spec), Cache.default(), 0).csr
