"""The study of DASH: every method with every seed, on every operator that the samples have, into one file of facts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import DatasetError, RecordError, SweepError, UnsupportedError
from spmark.impls.core.problem import Op
from spmark.impls.core.recordfile import RecordFile, lock_folder
from spmark.impls.table import find_platform
from spmark.studies.collected import CollectedRow, read_collected
from spmark.studies.contracts import Outcome, StudyJob
from spmark.studies.dash.methods import METHODS, RULED, StudyTask, tasks
from spmark.studies.dash.methodstudy import MethodStudy
from spmark.studies.dash.samples import check_apart, gather
from spmark.studies.dash.training import OutOfTime
from spmark.studies.rows import digest_of
from spmark.studies.transferfacts import TransferFact, TransferResult, TransferRun, read_transfers

_MADE_WITH = ("torch", "safetensors", "numpy", "scipy", "lightgbm")
NAME: Final = "transfers.jsonl"
_WHICH: Final = frozenset(
    "kind method source target op seed source_matrices target_matrices matrix phase epoch what matrices machine".split()
)
"""What tells facts of one kind apart; the rest is what was found."""
_Rows = Mapping[str, Sequence[CollectedRow]]
"""What was collected for one operator: of the source, of the target, and what judges."""


class FactFile:
    """The facts of a folder: no fact stands there twice, and all facts are of the same samples.

    Parameters
    ----------
    folder : Path
    run : TransferRun
        What makes the facts now.

    Raises
    ------
    RecordError
        The file cannot be read, or holds facts of other samples or of another command.
    """

    def __init__(self, folder: Path, run: TransferRun) -> None:
        self.path, self._run = folder / NAME, run
        self.facts = {_identity(one): one for one in read_transfers([self.path] if self.path.exists() else [])}
        for other in self.facts.values():
            if isinstance(other, TransferRun) and (other.command, other.samples) != (run.command, run.samples):
                raise RecordError(
                    f"{self.path}: expected facts of '{run.command}' and its samples, found those of "
                    f"'{other.command}'; name another folder with --out"
                )

    @property
    def results(self) -> list[TransferResult]:
        """The results."""
        return [fact for fact in self.facts.values() if isinstance(fact, TransferResult)]

    def add(self, facts: Iterable[TransferFact]) -> None:
        """Append the facts that the file lacks, behind the fact about what makes them.

        Raises
        ------
        RecordError
            The file cannot be written.
        """
        fresh = {which: one for one in (self._run, *facts) if (which := _identity(one)) not in self.facts}
        with RecordFile(self.path) as file:
            file.append_all(fresh.values())
        self.facts |= fresh


def _identity(fact: TransferFact) -> str:
    return fact.model_dump_json(include=None if isinstance(fact, TransferRun) else set(_WHICH))


def compare(job: StudyJob) -> Outcome:
    """Train every method with every seed, judge it, and append the facts; a study that was stopped goes on.

    A method that lacks its library, or that cannot learn from so few samples, is left out.

    Raises
    ------
    SweepError
        A method is unknown.
    DatasetError
        Samples are broken, too few, or of a matrix that judges.
    RecordError
        The facts cannot be written, or facts of other samples stand in their place.
    """
    for method in job.methods:
        if method not in METHODS:
            raise SweepError(none_of("a method", method, METHODS))
    named = {"source": job.source, "target": job.target, "evaluation": job.evaluation}
    samples = [(role, path) for role, paths in named.items() for path in paths]
    run = TransferRun(
        command=job.command,
        versions=dict(_versions()),
        samples={f"{role}/{path.parent.name}/{path.name}": digest_of([path]) for role, path in samples},
        spmark=version("spmark"),
        commit=job.commit,
    )
    lacking: dict[str, str] = {}
    with lock_folder(job.out):
        file = FactFile(job.out, run)
        before, left = len(file.facts), 0
        for rows in _by_operator(job):
            todo = _todo(job, rows, file)
            left += len(todo)
            if todo and time.monotonic() < job.ends:
                left -= _done(job, rows, todo, file, lacking)
        made = len(file.facts) - before
    reasons = "".join(f"; {method} is left out: {reason}" for method, reason in lacking.items())
    answer = {"file": file.path, "facts": len(file.facts), "made": made, "left": left, "left_out": lacking}
    line = f"{file.path}: {made} facts more, {left} trainings left{reasons}"
    return Outcome(answer, line, "Shares of the optimum's speed-up", _summary(file.results), left)


def _by_operator(job: StudyJob) -> Iterator[_Rows]:
    """Give the rows of each operator that all files have; a matrix whose default has no samples judges nothing.

    Raises
    ------
    DatasetError
        There is no such operator, or several problems of one matrix judge.
    """
    named = {"source": job.source, "target": job.target, "evaluation": job.evaluation}
    read = {role: read_collected(files, job.op) for role, files in named.items()}
    operators = [op for op in Op if all(any(row.op == op for row in of) for of in read.values())]
    for op in operators:
        rows = {role: [row for row in of if row.op == op] for role, of in read.items()}
        whole = [row for row in rows["evaluation"] if row.configs[0].chosen_by_us]
        for row in rows["evaluation"]:
            if row not in whole:
                job.tell(f"{row.matrix} judges nothing: its default config has no samples: {row.configs[0].reason}")
        if len({row.matrix for row in whole}) < len(whole) or not whole:
            raise DatasetError(f"expected one problem of {op} for each matrix that judges, found {len(whole)} problems")
        yield rows | {"evaluation": whole}
    if not operators:
        raise DatasetError(f"expected samples of {job.op or 'an operator'} in all files, found none")


def _todo(job: StudyJob, rows: _Rows, file: FactFile) -> list[StudyTask]:
    """Give the tasks that lack a result; a platform without a rule for the operator has no task of `RULED`."""
    first = rows["target"][0]
    is_ruled = first.op in getattr(find_platform(first.platform), "ruled", ())
    asked = [one for one in METHODS if one in (job.methods or METHODS) and (one != RULED or is_ruled)]
    main, available = (
        (job.source_matrices, job.target_matrices),
        [len({row.matrix for row in of}) for of in rows.values()],
    )
    judged = {
        (*(getattr(one, name) for name in StudyTask._fields), one.matrix) for one in file.results if one.op == first.op
    }
    seeds = range(job.shard[0] - 1, job.seeds, job.shard[1])
    return [
        task
        for task in tasks(asked, job.seeds, main, (available[0], available[1]))
        if task.seed in seeds and not judged.issuperset((*task, row.matrix) for row in rows["evaluation"])
    ]


def _done(job: StudyJob, rows: _Rows, todo: Sequence[StudyTask], file: FactFile, lacking: dict[str, str]) -> int:
    """Do tasks as long as there is time; gives how many are done, and notes why a method could not be trained."""
    source, target, judges = (gather(of, job.load) for of in rows.values())
    check_apart(source, target, judges)
    for of, count in ((source, job.source_matrices), (target, job.target_matrices)):
        of.first(count)  # there are as many
    study, op, done = MethodStudy(source, target, judges, job), rows["target"][0].op, 0
    with suppress(OutOfTime):
        for task in todo:
            if time.monotonic() >= job.ends:
                break
            try:
                file.add(study.facts(task))
            except (UnsupportedError, DatasetError) as error:
                lacking[task.method] = f"{error} ({op}, {task.source_matrices} and {task.target_matrices} matrices)"
                continue
            done += 1
            job.tell(f"{op}: {done} of {len(todo)} done, {task.method} with seed {task.seed}")
    return done


def _summary(results: Sequence[TransferResult]) -> list[dict[str, Any]]:
    """Give a row for each method: geometric means over matrices and seeds."""
    if not results:
        return []
    table = pd.DataFrame([one.model_dump(mode="json") for one in results])
    logs = np.log(table[["default_us", "optimum_us", "top1_us", "top5_us"]])
    names = {"op": "op", "method": "method", "source_matrices": "source", "target_matrices": "target"}
    gains = {
        "top 1": logs["optimum_us"] - logs["top1_us"],
        "top 5": logs["optimum_us"] - logs["top5_us"],
        "speed-up": logs["default_us"] - logs["top5_us"],
    }
    groups = table[[*names]].rename(columns=names).assign(**gains).groupby([*names.values()], sort=False)
    means = groups.mean().map(np.exp).assign(results=groups.size()).reset_index()
    return [{str(name): value for name, value in row.items()} for row in means.to_dict("records")]


def _versions() -> Iterator[tuple[str, str]]:
    for name in _MADE_WITH:
        with suppress(PackageNotFoundError):
            yield name, version(name)
