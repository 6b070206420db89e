"""The study of DASH: every method with every seed, on every operator that the samples have, into one file of facts.

Each method is trained, and judged on the same configs of the same matrices. Every config has two times, from two
halves of its samples. Whatever is chosen, the best of a method's first k or the optimum, is chosen by the first half
and valued by the second. An optimum that were chosen and valued by the same samples would be too good by their noise,
and a method's share of it too low.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError, RecordError, SweepError, UnsupportedError, none_of
from spmark.impls.core.problem import Op
from spmark.impls.dash.withtorch import best_device, computer
from spmark.impls.table import find_platform
from spmark.records.rowfile import RecordFile, lock_folder
from spmark.records.sixdigits import six_digits
from spmark.studies import transferfacts
from spmark.studies.collected import CollectedRow, read_collected
from spmark.studies.contracts import Outcome, StudyJob
from spmark.studies.dash import methods
from spmark.studies.dash.methods import FINE_TUNING, METHODS, MODELS, PRETRAINING, Maker, StudyTask, Trained
from spmark.studies.dash.rankers import Ranker, best_on_target, by_trees, random_configs
from spmark.studies.dash.samples import Gathered, SampleSet, check_apart, gather
from spmark.studies.dash.training import Embeddings, Epoch, OutOfTime, Session, embedder
from spmark.studies.orders import kendall, share_in_order
from spmark.studies.rows import digest_of
from spmark.studies.transferfacts import TransferCost, TransferCurve, TransferFact, TransferResult, TransferRun

_MADE_WITH = ("torch", "safetensors", "numpy", "scipy", "lightgbm")
NAME: Final = "transfers.jsonl"
_HOST = {"machine": "cpu", "cores": 1}
"""What trains and scores: baselines use one core."""
_WHICH: Final = frozenset(
    "kind method source target op seed source_matrices target_matrices matrix phase epoch what matrices machine".split()
)
"""What tells facts of one kind apart; the rest is what was found."""
_ROLES: Final = ("source", "target", "evaluation")
"""What files of samples are for: fields of a job."""
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
        The file cannot be read or written, or holds facts of other samples or of another command.
    """

    def __init__(self, folder: Path, run: TransferRun) -> None:
        self.path, self._run = folder / NAME, run
        self.facts: dict[str, TransferFact] = {}
        for one in transferfacts.read_transfers([self.path] if self.path.exists() else []):
            if isinstance(one, TransferRun) and (one.command, one.samples) != (run.command, run.samples):
                raise RecordError(
                    f"{self.path}: expected facts of '{run.command}' and its samples, found those of "
                    f"'{one.command}'; name another folder with --out"
                )
            self.facts[_identity(one)] = one

    @property
    def results(self) -> list[TransferResult]:
        """The results."""
        return [fact for fact in self.facts.values() if isinstance(fact, TransferResult)]

    def add(self, facts: Iterable[TransferFact]) -> None:
        """Append the facts that the file lacks, behind the fact about what makes them."""
        fresh = {which: one for one in (self._run, *facts) if (which := _identity(one)) not in self.facts}
        with RecordFile(self.path) as file:
            file.append_all(fresh.values())
        self.facts |= fresh


def _identity(fact: TransferFact) -> str:
    return fact.model_dump_json(include=None if isinstance(fact, TransferRun) else set(_WHICH))


class MethodStudy:
    """Samples of both platforms, and of the matrices that judge; several methods share what is made of them.

    Parameters
    ----------
    source, target, judges : Gathered
    job : StudyJob
        Says how models are trained.
    """

    def __init__(self, source: Gathered, target: Gathered, judges: Gathered, job: StudyJob) -> None:
        self._source, self._target, self._judges, self._job = source, target, judges, job
        self._pretrained: dict[str, Trained] = {}
        self._embeddings: Embeddings = {}

    def facts(self, task: StudyTask) -> list[TransferFact]:
        """Train and judge one method.

        Raises
        ------
        DatasetError
            There are fewer matrices than the task asks for.
        OutOfTime
            The time is up before the last epoch; the checkpoint holds the epochs so far.
        UnsupportedError
            The method's library is not installed.
        BuildError
            A checkpoint is of another training, or a model cannot be written.
        """
        source = self._source.first(task.source_matrices) if task.source_matrices else None
        target = self._target.first(task.target_matrices) if task.target_matrices else None
        facts = _Facts(task, source, self._judges)
        for of in filter(None, (source, target)):
            row = of.rows[0]
            facts.cost("collect", _collecting_s(of), of, {"machine": row.machine, "cores": len(row.cores)})
        if task.method in MODELS:
            self._judge_model(task, source, target, facts)
        else:
            started = time.perf_counter()
            ranker = self._baseline(task, source, target)
            if target:
                facts.cost("finetune", time.perf_counter() - started, target, _HOST)
            facts.judge(ranker, self._judges.samples, _HOST)
        return facts.made

    def _baseline(self, task: StudyTask, source: Gathered | None, target: Gathered | None) -> Ranker:
        if not target:
            return self._by_rule() if task.method == methods.RULED else random_configs(task.seed)
        if task.method == "target_best":
            return best_on_target(target.samples)
        return by_trees(target.samples, source.samples if source else None)

    def _by_rule(self) -> Ranker:
        """Ask the target platform's rule about the configs that judge."""
        platform, scores = find_platform(self._target.platform), {}
        for row in self._judges.rows:
            problem = row.problem(self._job.load(row.spec))
            scores[row.matrix] = np.array(platform.by_rule(problem, [one.config for one in row.timed]))
        return lambda one: scores[one.matrix]

    def _judge_model(self, task: StudyTask, source: Gathered | None, target: Gathered | None, facts: _Facts) -> None:
        """Train a model in one or two phases."""
        maker = self._maker(task.method, task.seed)
        name, seen, trained = "-".join(map(str, task)), maker.seen(self._judges), dict[str, Trained]()
        if source:
            trained[PRETRAINING] = self._source_model(task.method, task.seed, source)
        if target:
            session = self._session(self._target, name, held_out=seen if source else None)
            trained[FINE_TUNING] = maker.trained(target, session, trained[PRETRAINING][0] if source else None)
        model = trained[FINE_TUNING][0] if target else maker.moved(trained[PRETRAINING][0], self._judges)
        trainer = _on(computer(best_device()))
        for phase, what, platform in ((PRETRAINING, "pretrain", source), (FINE_TUNING, "finetune", target)):
            if platform:
                _, curve = trained[phase]
                facts.curve(phase, curve)
                for on in dict.fromkeys(epoch.on for epoch in curve):
                    facts.cost(what, sum(epoch.seconds for epoch in curve if epoch.on == on), platform, _on(on))
        if task.method in methods.HEADLINE:
            subject = model.card.subject
            model.save(self._job.out / "models" / f"{subject.platform}-{subject.op}-{name}.safetensors")
        embed = embedder(model.network, self._embeddings)
        facts.cost("features", sum(embed(one)[1] for one in seen.matrices), self._judges, trainer)
        facts.judge(lambda one: model.rank(embed(one)[0], one.common, one.own), seen, trainer)

    def _source_model(self, method: str, seed: int, source: Gathered) -> Trained:
        """Pre-train a model, or take the one that a method with the same network and featuriser has had."""
        maker = self._maker(method, seed)
        of = maker.variant.featuriser_of
        words = maker.spec.model_dump_json(), maker.variant.waco, of, seed, len(source.rows)
        name = f"source-{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}"
        if name not in self._pretrained:
            given = self._source_model(of, 0, source)[0] if of else None
            self._pretrained[name] = maker.trained(source, self._session(source, name, featuriser_of=given))
        return self._pretrained[name]

    def _maker(self, method: str, seed: int) -> Maker:
        return Maker(MODELS[method], [self._source, self._target], self._job.epochs, seed)

    def _session(self, platform: Gathered, name: str, **more: Any) -> Session:
        label = f"{platform.platform}-{platform.samples.subject.op}-{name}"
        return Session(
            checkpoint=self._job.out / "checkpoints" / f"{label}.checkpoint",
            embeddings=self._embeddings,
            device=best_device(),
            command=self._job.command,
            tell=lambda line: self._job.tell(f"{label}, {line}"),
            ends=self._job.ends,
            **more,
        )


class _Facts:
    """What a study writes down about one task: curves, seconds, and the result of each matrix."""

    def __init__(self, task: StudyTask, source: Gathered | None, judges: Gathered) -> None:
        self.made: list[TransferFact] = []
        self._judges, subject = judges, judges.samples.subject
        platforms = {"source": source.platform if source else "", "target": subject.platform}
        self._of_model = task._asdict() | platforms | {"op": subject.op}

    def curve(self, phase: str, epochs: Sequence[Epoch]) -> None:
        """Add a fact for each epoch."""
        seconds = accumulate(epoch.seconds for epoch in epochs)
        for number, (one, sum_s) in enumerate(zip(epochs, seconds, strict=True), 1):
            told = six_digits({"values": one.values, "seconds": sum_s})
            self.made.append(TransferCurve.model_validate({**self._of_model, **told, "phase": phase, "epoch": number}))

    def cost(self, what: str, seconds: float, of: Gathered, on: dict[str, Any]) -> None:
        """Say what a part took."""
        about = {name: self._of_model[name] for name in ("method", "source", "target", "op", "seed")}
        told = {"seconds": six_digits(seconds), "matrices": len(of.rows), "configs": of.samples.count}
        self.made.append(TransferCost.model_validate({**about, "what": what, **told, **on}))

    def judge(self, ranker: Ranker, samples: SampleSet, on: dict[str, Any]) -> None:
        """Let a ranker score all configs that judge, and add its seconds and results."""
        started = time.perf_counter()
        scores = [ranker(one) for one in samples.matrices]
        self.cost("score", time.perf_counter() - started, self._judges, on)
        for row, one, found in zip(self._judges.rows, samples.matrices, scores, strict=True):
            of = {name: getattr(row, name) for name in ("matrix", "pattern_sha256", "machine", "note")}
            told = six_digits(judged(row, found, self._judges.noise)) | {"nnz": one.nnz, "configs": len(found) - 1}
            self.made.append(TransferResult.model_validate(self._of_model | of | told))


def _on(computer: tuple[str, int]) -> dict[str, Any]:
    return dict(zip(("machine", "cores"), computer, strict=True))


def judged(row: CollectedRow, scores: NDArray[np.float64], noise: float) -> dict[str, float | None]:
    """Judge the scores of a row's timed configs, the default among them, as `TransferResult` has it."""
    chosen_by, valued_by = row.halves_us

    def best(which: NDArray[Any]) -> float:
        return float(valued_by[which[chosen_by[which].argmin()]])

    order = np.argsort(scores, kind="stable")
    agreement = {
        f"{name}{end}": value if np.isfinite(value) else None
        for end, ordered in (("", scores), ("_ceiling", chosen_by))
        for name, value in (("opa", share_in_order(ordered, valued_by, noise)), ("tau", kendall(ordered, valued_by)))
    }
    times = {"default_us": float(valued_by[0]), "optimum_us": best(np.arange(len(scores)))}
    return {**agreement, **times, "top1_us": best(order[:1]), "top5_us": best(order[:5])}


def _collecting_s(of: Gathered) -> float:
    """Give the seconds of all samples, without building and checking."""
    return 1e-6 * sum(sum(one.samples_us) for row in of.rows for one in row.timed)


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
    samples = {
        f"{role}/{path.parent.name}/{path.name}": digest_of([path]) for role in _ROLES for path in getattr(job, role)
    }
    run = TransferRun(
        command=job.command,
        versions={name: version(name) for name in _MADE_WITH if find_spec(name)},
        samples=samples,
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
    read = {role: read_collected(getattr(job, role), job.op) for role in _ROLES}
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
    asked = [one for one in METHODS if one in (job.methods or METHODS) and (one != methods.RULED or is_ruled)]
    source, target, _ = (len({row.matrix for row in of}) for of in rows.values())
    of_result = attrgetter(*StudyTask._fields, "matrix")
    judged = {of_result(one) for one in file.results if one.op == first.op}
    seeds = range(job.shard[0] - 1, job.seeds, job.shard[1])
    return [
        task
        for task in methods.tasks(asked, job.seeds, (job.source_matrices, job.target_matrices), (source, target))
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
