"""Methods beside each other on one operator: each is trained, and judged on the same configs of the same matrices.

Every config has two times, from two halves of its samples. Whatever is chosen, the best of a method's first k or the
optimum, is chosen by the first half and valued by the second. An optimum that were chosen and valued by the same
samples would be too good by their noise, and a method's share of it too low.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.sixdigits import six_digits
from spmark.impls.dash.withtorch import best_device, load_torch
from spmark.impls.table import find_platform
from spmark.studies.collected import CollectedRow
from spmark.studies.contracts import StudyJob
from spmark.studies.dash.methods import FINE_TUNING, HEADLINE, MODELS, PRETRAINING, Maker, StudyTask, Trained
from spmark.studies.dash.rankers import Ranker, best_on_target, by_model, by_trees, random_configs
from spmark.studies.dash.samples import Gathered, SampleSet
from spmark.studies.dash.training import Embeddings, Epoch, Session, embedder
from spmark.studies.orders import Pairs, kendall
from spmark.studies.transferfacts import TransferCost, TransferCurve, TransferFact, TransferResult

_HOST = {"machine": "cpu", "cores": 1}
"""What trains and scores: baselines use one core."""


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
        if task.method == "random5":
            return random_configs(task.seed)
        if target is None:
            return self._by_rule()
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
        maker, torch = self._maker(task.method, task.seed), load_torch()
        name = "-".join(map(str, task))
        seen = maker.seen(self._judges)
        model, curves = maker.in_phases(
            self._source_model(task.method, task.seed, source) if source else None,
            target,
            lambda: self._session(self._target, name, held_out=seen if source else None),
            self._judges,
        )
        machine = torch.cuda.get_device_name() if best_device() == "cuda" else "cpu"
        trainer = {"machine": machine, "cores": torch.get_num_threads()}
        for phase, what, platform in ((PRETRAINING, "pretrain", source), (FINE_TUNING, "finetune", target)):
            if platform:
                facts.curve(phase, curves[phase])
                facts.cost(what, sum(epoch.seconds for epoch in curves[phase]), platform, trainer)
        if task.method in HEADLINE:
            subject = model.card.subject
            model.save(self._job.out / "models" / f"{subject.platform}-{subject.op}-{name}.safetensors")
        embed = embedder(model.network, self._embeddings)
        facts.cost("features", sum(embed(one)[1] for one in seen.matrices), self._judges, trainer)
        facts.judge(by_model(model, embed), seen, trainer)

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
        self._of_model = {**task._asdict(), "target": subject.platform, "op": subject.op}
        self._of_model["source"] = source.platform if source else ""

    def curve(self, phase: str, epochs: Sequence[Epoch]) -> None:
        """Add a fact for each epoch."""
        seconds = accumulate(epoch.seconds for epoch in epochs)
        for number, (one, sum_s) in enumerate(zip(epochs, seconds, strict=True), 1):
            told = six_digits({"values": one.known(), "seconds": sum_s})
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


def judged(row: CollectedRow, scores: NDArray[np.float64], noise: float) -> dict[str, float | None]:
    """Judge the scores of a row's timed configs, the default among them, as `TransferResult` has it."""
    chosen_by, valued_by = row.halves_us

    def best(which: NDArray[Any]) -> float:
        return float(valued_by[which[chosen_by[which].argmin()]])

    order = np.argsort(scores, kind="stable")
    pairs = Pairs.of(valued_by, noise)
    agreement = {
        f"{name}{end}": value if np.isfinite(value) else None
        for end, ordered in (("", scores), ("_ceiling", chosen_by))
        for name, value in (("opa", pairs.share_in_order(ordered)), ("tau", kendall(ordered, valued_by)))
    }
    times = {"default_us": float(valued_by[0]), "optimum_us": best(np.arange(len(scores)))}
    return {**agreement, **times, "top1_us": best(order[:1]), "top5_us": best(order[:5])}


def _collecting_s(of: Gathered) -> float:
    """Give the seconds of all samples, without building and checking; a simulated time stands in both halves."""
    samples = [
        {one.chosen_by_us, one.valued_by_us} if len(one.chosen_by_us) == 1 else (one.chosen_by_us, one.valued_by_us)
        for row in of.rows
        for one in row.timed
    ]
    return 1e-6 * sum(sum(half) for halves in samples for half in halves)
