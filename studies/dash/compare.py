"""The study of DASH: every method with every seed, on every operator that the samples have, into one file of facts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError, UnsupportedError
from spmark.impls.core.problem import Op
from spmark.impls.core.recordfile import FolderLock
from spmark.impls.table import find_platform
from spmark.impls.tuning.platform import RuledPlatform
from spmark.studies.collected import CollectedRow, read_collected
from spmark.studies.contracts import Outcome, StudyJob
from spmark.studies.dash.factfile import FactFile
from spmark.studies.dash.gathering import check_apart, gather
from spmark.studies.dash.judging import Gain, overall
from spmark.studies.dash.methodstudy import Conduct, MethodStudy
from spmark.studies.dash.tasks import RULED, Sizes, StudyTask, check_methods, tasks
from spmark.studies.dash.training import OutOfTime
from spmark.studies.rows import digest_of
from spmark.studies.transferfacts import TransferResult, TransferRun

_MADE_WITH = ("torch", "safetensors", "numpy", "scipy", "lightgbm")


@dataclass(frozen=True)
class _Rows:
    """What was collected for one operator."""

    op: Op
    source: Sequence[CollectedRow]
    target: Sequence[CollectedRow]
    judges: Sequence[CollectedRow]

    @property
    def is_ruled(self) -> bool:
        """Tell whether the target platform has a rule for the operator."""
        return self.op in getattr(find_platform(self.target[0].platform), "ruled", ())


def compare(job: StudyJob) -> Outcome:
    """Do what a study asks for, as `spmark.studies.contracts.TransferLearning.study` says."""
    methods = check_methods(job.methods)
    named = {"source": job.source, "target": job.target, "evaluation": job.evaluation}
    run = TransferRun(
        command=job.command,
        versions=dict(_versions()),
        samples={
            f"{role}/{path.parent.name}/{path.name}": digest_of([path])
            for role, paths in named.items()
            for path in paths
        },
        spmark=version("spmark"),
        commit=job.commit,
    )
    lacking: dict[str, str] = {}
    with FolderLock(job.out):
        file = FactFile(job.out, run)
        before, left = len(file.facts), 0
        for rows in _by_operator(job):
            todo = _todo(job, rows, [one for one in methods if one != RULED or rows.is_ruled], file)
            left += len(todo)
            if todo and time.monotonic() < job.ends:
                left -= _done(job, rows, todo, file, lacking)
        made = len(file.facts) - before
    reasons = "".join(f"; {method} is left out: {reason}" for method, reason in lacking.items())
    answer = {"file": file.path, "facts": len(file.facts), "made": made, "left": left, "left_out": lacking}
    line = f"{file.path}: {made} facts more, {left} trainings left{reasons}"
    return Outcome(answer, line, "Shares of the optimum's speed-up", _summary(file.results()), left)


def _by_operator(job: StudyJob) -> Iterator[_Rows]:
    """Give the rows of each operator that all files have; a matrix whose default has no samples judges nothing.

    Raises
    ------
    DatasetError
        There is no such operator, or several problems of one matrix judge.
    """
    source, target, judges = (read_collected(files, job.op) for files in (job.source, job.target, job.evaluation))
    found = False
    for op in Op:
        rows = _Rows(op, *([row for row in of if row.op == op] for of in (source, target, judges)))
        if not (rows.source and rows.target and rows.judges):
            continue
        found = True
        whole = [row for row in rows.judges if row.configs[0].chosen_by_us]
        for row in rows.judges:
            if row not in whole:
                job.tell(f"{row.matrix} judges nothing: its default config has no samples: {row.configs[0].reason}")
        if len({row.matrix for row in whole}) < len(whole) or not whole:
            raise DatasetError(f"expected one problem of {op} for each matrix that judges, found {len(whole)} problems")
        yield _Rows(op, rows.source, rows.target, whole)
    if not found:
        raise DatasetError(f"expected samples of {job.op or 'an operator'} in all files, found none")


def _todo(job: StudyJob, rows: _Rows, methods: Sequence[str], file: FactFile) -> list[StudyTask]:
    """Give the tasks that lack a result."""
    sizes = (
        Sizes(main, len({row.matrix for row in of}))
        for main, of in ((job.source_matrices, rows.source), (job.target_matrices, rows.target))
    )
    judged = file.judged()

    def is_done(task: StudyTask) -> bool:
        of = task.method, rows.op, task.seed, task.source_matrices, task.target_matrices
        return all((*of, row.matrix) in judged for row in rows.judges)

    return [task for task in tasks(methods, job.seeds, *sizes) if job.owns(task.seed) and not is_done(task)]


def _done(job: StudyJob, rows: _Rows, todo: Sequence[StudyTask], file: FactFile, lacking: dict[str, str]) -> int:
    """Do tasks as long as there is time; gives how many are done, and notes why a method could not be trained."""
    source, target, judges = (gather(of, job.load) for of in (rows.source, rows.target, rows.judges))
    check_apart(source, target, judges)
    for of, count in ((source, job.source_matrices), (target, job.target_matrices)):
        of.first(count)  # there are as many
    conduct = Conduct(job.epochs, job.out, job.command, job.ends, job.tell)
    rules = _rules(job, rows) if any(task.method == RULED for task in todo) else {}
    study = MethodStudy(source, target, judges, rules, conduct)
    done = 0
    for task in todo:
        if time.monotonic() >= job.ends:
            break
        try:
            file.add(study.facts(task))
        except (UnsupportedError, DatasetError) as error:
            lacking[task.method] = f"{error} ({rows.op}, {task.source_matrices} and {task.target_matrices} matrices)"
            continue
        except OutOfTime:
            break
        done += 1
        job.tell(f"{rows.op}: {done} of {len(todo)} done, {task.method} with seed {task.seed}")
    return done


def _rules(job: StudyJob, rows: _Rows) -> Mapping[str, NDArray[np.float64]]:
    """Ask the target platform's rule about the configs that judge."""
    platform: RuledPlatform = find_platform(rows.target[0].platform)
    return {
        row.matrix: np.array(
            platform.by_rule(row.problem(job.load(row.spec)), [one.config for one in row.configs if one.chosen_by_us])
        )
        for row in rows.judges
    }


def _summary(results: Sequence[TransferResult]) -> list[dict[str, Any]]:
    """Give a row for each method: geometric means over matrices and seeds."""
    groups: dict[tuple[str, str, int, int], list[TransferResult]] = {}
    for one in results:
        groups.setdefault((one.op, one.method, one.source_matrices, one.target_matrices), []).append(one)
    table = []
    for (op, method, source, target), found in groups.items():
        first, five = (
            overall([Gain(one.default_us / getattr(one, name), one.default_us / one.optimum_us) for one in found])
            for name in ("top1_us", "top5_us")
        )
        table.append(
            {"op": op, "method": method, "source": source, "target": target, "top 1": first.share, "top 5": five.share,
             "speed-up": five.speedup, "results": len(found)}
        )  # fmt: skip
    return table


def _versions() -> Iterator[tuple[str, str]]:
    for name in _MADE_WITH:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
