"""Methods beside each other on one operator: each is trained, and judged on the same configs of the same matrices."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.encoders import Encoder, EncoderKind
from spmark.impls.dash.weights import TrainedModel
from spmark.impls.dash.withtorch import best_device, load_torch
from spmark.studies.dash.checkpoints import Epoch
from spmark.studies.dash.embeddings import Embeddings
from spmark.studies.dash.gathering import Gathered
from spmark.studies.dash.methods import HEADLINE, MODELS, Maker, fitted
from spmark.studies.dash.rankers import BestOnTarget, ByRule, ModelScores, RandomConfigs, Ranker, TreeRanker
from spmark.studies.dash.samples import SampleSet
from spmark.studies.dash.taskfacts import TaskFacts, TrainingMachine
from spmark.studies.dash.tasks import StudyTask
from spmark.studies.dash.training import BATCH, Session, TrainingSettings
from spmark.studies.transferfacts import TransferFact

_HOST = TrainingMachine("cpu", 1)
"""Baselines use one core."""


@dataclass(frozen=True)
class Conduct:
    """How models are trained in a study."""

    epochs: int
    folder: Path
    """For checkpoints and models."""
    command: str
    ends: float
    """Time of the monotonic clock, in seconds, after which no epoch begins."""
    tell: Callable[[str], None]


@dataclass(frozen=True, eq=False)
class MethodStudy:
    """Samples of both platforms, and of the matrices that judge; several methods share what is made of them."""

    source: Gathered
    target: Gathered
    judges: Gathered
    rules: Mapping[str, NDArray[np.float64]]
    """Scores by the target platform's rule, by id of the matrix that judges; empty where there is no rule."""
    conduct: Conduct
    _pretrained: dict[str, tuple[TrainedModel, Sequence[Epoch]]] = field(default_factory=dict)
    _embeddings: Embeddings = field(default_factory=Embeddings)
    _encoders: dict[tuple[EncoderKind, str, int], Encoder] = field(default_factory=dict)

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
        about = TaskFacts(
            task,
            self.source.first(task.source_matrices) if task.source_matrices else None,
            self.target.first(task.target_matrices) if task.target_matrices else None,
            self.judges,
        )
        facts: list[TransferFact] = [about.collected(of) for of in (about.source, about.target) if of]
        if task.method in MODELS:
            facts += self._judged_model(about)
        else:
            started = time.perf_counter()
            ranker = self._baseline(about)
            if about.target:
                facts.append(about.cost("finetune", time.perf_counter() - started, about.target, _HOST))
            facts += _judged(ranker, self.judges.samples, about)
        return facts

    def _baseline(self, about: TaskFacts) -> Ranker:
        source, target = (of.samples if of else None for of in (about.source, about.target))
        match about.task.method, target:
            case "random5", _:
                return RandomConfigs(about.task.seed)
            case "rule_ck", _:
                return ByRule(self.rules)
            case "target_best", SampleSet():
                return BestOnTarget(target)
            case "lightgbm" | "lightgbm_source", SampleSet():
                return TreeRanker(target, source)
        raise ValueError(f"expected a baseline, found {about.task}")

    def _judged_model(self, about: TaskFacts) -> list[TransferFact]:
        """Train a model in one or two phases."""
        task, maker, machine = about.task, self._maker(about.task.method), _machine()
        name = f"{task.method}-{task.seed}-{task.source_matrices}-{task.target_matrices}"
        seen = maker.seen(self.judges).samples
        facts: list[TransferFact] = []
        if about.source is None:
            assert about.target, "every model sees a platform"
            model, tuning = self._trained(maker, about.target, task.seed, name)
        else:
            model, curve = self._source_model(task.method, task.seed, about.source)
            facts += about.curve("pre-training", curve)
            facts.append(about.cost("pretrain", _seconds(curve), about.source, machine))
            if about.target:
                session = self._session(about.target, name, held_out=seen)
                model, tuning = maker.fine_tuned(model, about.target, self._settings(about.target, task.seed), session)
            else:
                model, tuning = maker.retargeted(model, self.target, task.seed), []
        if about.target:
            facts += about.curve("fine-tuning", tuning)
            facts.append(about.cost("finetune", _seconds(tuning), about.target, machine))
        if task.method in HEADLINE:
            subject = model.card.subject
            model.save(self.conduct.folder / "models" / f"{subject.platform}-{subject.op}-{name}.safetensors")
        return facts + _judged(ModelScores(model, self._embeddings), seen, about, machine)

    def _source_model(self, method: str, seed: int, source: Gathered) -> tuple[TrainedModel, Sequence[Epoch]]:
        """Pre-train a model, or take the one that a method with the same network and featuriser has had."""
        maker = self._maker(method)
        of = maker.variant.featuriser_of
        words = maker.spec.model_dump_json(), maker.variant.waco, of, seed, len(source.rows)
        name = f"source-{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}"
        if name not in self._pretrained:
            given = self._source_model(of, 0, source)[0] if of else None
            self._pretrained[name] = self._trained(maker, source, seed, name, given)
        return self._pretrained[name]

    def _trained(
        self, maker: Maker, platform: Gathered, seed: int, name: str, given: TrainedModel | None = None
    ) -> tuple[TrainedModel, Sequence[Epoch]]:
        session = self._session(platform, name, featuriser_of=given)
        return maker.pretrained(platform, self._settings(platform, seed), session)

    def _maker(self, method: str) -> Maker:
        return Maker(MODELS[method], [self.source, self.target], self._fitted)

    def _fitted(self, kind: EncoderKind, of: Gathered, seed: int) -> Encoder:
        """Fit an encoder once for all methods."""
        which = kind, of.samples.subject.platform, seed
        if which not in self._encoders:
            self._encoders[which] = fitted(kind, of, seed)
        return self._encoders[which]

    def _settings(self, of: Gathered, seed: int) -> TrainingSettings:
        batch = BATCH if of.samples.subject == self.target.samples.subject else None
        return TrainingSettings(epochs=self.conduct.epochs, seed=seed, noise=of.noise, batch=batch)

    def _session(
        self,
        platform: Gathered,
        name: str,
        *,
        held_out: SampleSet | None = None,
        featuriser_of: TrainedModel | None = None,
    ) -> Session:
        subject, conduct = platform.samples.subject, self.conduct
        label = f"{subject.platform}-{subject.op}-{name}"
        return Session(
            held_out=held_out,
            checkpoint=conduct.folder / "checkpoints" / f"{label}.checkpoint",
            featuriser_of=featuriser_of,
            embeddings=self._embeddings,
            device=best_device(),
            command=conduct.command,
            tell=lambda line: conduct.tell(f"{label}, {line}"),
            ends=conduct.ends,
        )


def _judged(
    ranker: Ranker, samples: SampleSet, about: TaskFacts, machine: TrainingMachine = _HOST
) -> list[TransferFact]:
    """Let a ranker score all configs that judge, and give its results and seconds."""
    facts: list[TransferFact] = []
    if isinstance(ranker, ModelScores):
        features_s = sum(ranker.features_s(one) for one in samples.matrices)
        facts.append(about.cost("features", features_s, about.judges, machine))
    started = time.perf_counter()
    scores = [ranker.score(one) for one in samples.matrices]
    seconds = time.perf_counter() - started
    facts.append(about.cost("score", seconds, about.judges, machine))
    judged = zip(about.judges.rows, about.judges.nnz, scores, strict=True)
    return facts + [about.result(row, nnz, found) for row, nnz, found in judged]


def _seconds(curve: Sequence[Epoch]) -> float:
    return sum(epoch.seconds for epoch in curve)


def _machine() -> TrainingMachine:
    """Say what trains and scores models."""
    torch = load_torch()
    name = torch.cuda.get_device_name() if best_device() == "cuda" else "cpu"
    return TrainingMachine(name, torch.get_num_threads())
