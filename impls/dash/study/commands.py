"""The part of ``spmark train`` that belongs to DASH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spmark.impls.core.contracts import Outcome, TransferJob
from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.dash.encoders import fit
from spmark.impls.dash.finding import own_model
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.study.checkpoints import Epoch
from spmark.impls.dash.study.gathering import Gathered, gather
from spmark.impls.dash.study.training import Session, TrainingSettings, fine_tune, pretrain
from spmark.impls.dash.weights import TrainedModel
from spmark.impls.study.collected import read_collected
from spmark.impls.study.rows import Row

PRETRAINING, FINE_TUNING = "pre-training", "fine-tuning"


class CurvePoint(Row):
    """A line of a model's curves."""

    phase: str
    epoch: int
    """Counted from 1."""
    values: dict[str, float]
    """By the names of `Epoch`."""


class TransferTraining:
    """Pre-training and fine-tuning of DASH's own model (`spmark.impls.core.contracts.TransferLearning`)."""

    def train(self, job: TransferJob) -> Outcome:
        """Train, and write the model, its curves and a checkpoint of each phase side by side.

        Raises
        ------
        DatasetError
            Samples are broken or too few, both platforms are the same, or a held-out matrix is trained on.
        UnsupportedError
            PyTorch or safetensors is not installed.
        BuildError
            The model cannot be written, or a checkpoint is of another training.
        """
        source = gather(read_collected(job.source, job.op), job.load, matrices=job.source_matrices)
        target = (
            gather(read_collected(job.target, job.op), job.load, matrices=job.target_matrices) if job.target else None
        )
        held_out = gather(read_collected(job.held_out, job.op), job.load) if job.held_out else None
        _check(source, target, held_out)
        subject, spec = (target or source).samples.subject, NetworkSpec()
        out = job.out or own_model(subject.platform, subject.op)

        def session(phase: str, last: bool) -> Session:
            return Session(
                held_out=held_out.samples if held_out and last else None,
                checkpoint=out.with_suffix(f".{phase}.checkpoint"),
                command=job.command,
                tell=lambda line: job.tell(f"{phase}, {line}"),
            )

        def settings(of: Gathered) -> TrainingSettings:
            return TrainingSettings(epochs=job.epochs, seed=job.seed, noise=of.noise)

        encoder = fit(spec.encoder, source.own.every(), job.seed)
        model, curve = pretrain(spec, encoder, source.samples, settings(source), session(PRETRAINING, target is None))
        curves = {PRETRAINING: curve}
        if target is not None:
            encoder = fit(spec.encoder, target.own.every(), job.seed)
            model, curves[FINE_TUNING] = fine_tune(
                model, encoder, target.samples, settings(target), session(FINE_TUNING, last=True)
            )
        return _told(model, curves, out)


def _check(source: Gathered, target: Gathered | None, held_out: Gathered | None) -> None:
    platform = (target or source).samples.subject.platform
    if target and platform == source.samples.subject.platform:
        raise DatasetError(f"expected samples of two platforms, found {platform} as source and as target")
    if held_out is None:
        return
    if held_out.samples.subject.platform != platform:
        raise DatasetError(
            f"expected held-out samples of {platform}, found {held_out.samples.subject.platform}: "
            "the model is judged on its own platform"
        )
    trained = source.patterns.keys() | (target.patterns.keys() if target else set())
    if both := sorted(held_out.patterns[pattern] for pattern in trained & held_out.patterns.keys()):
        raise DatasetError(f"expected held-out matrices that no training has seen, found {', '.join(both)} in both")


def _told(model: TrainedModel, curves: dict[str, Sequence[Epoch]], out: Path) -> Outcome:
    """Write model and curves."""
    card = model.save(out)
    points = [
        CurvePoint(phase=phase, epoch=number, values=epoch.known())
        for phase, curve in curves.items()
        for number, epoch in enumerate(curve, 1)
    ]
    file = out.with_suffix(".curves.jsonl")
    try:
        file.write_text("".join(point.model_dump_json() + "\n" for point in points), encoding="utf-8")
    except OSError as error:
        raise BuildError(f"{file}: the curves cannot be written: {error.strerror}") from error
    answer = {"file": out, "curves": file, "card": card.model_dump(mode="json")}
    rows = [{"phase": phase, **curve[-1].known()} for phase, curve in curves.items() if curve]
    known = [{name: row.get(name) for name in dict.fromkeys(key for one in rows for key in one)} for row in rows]
    return Outcome(answer, f"{out}\n{file}", f"{card.subject.op} on {card.subject.platform}, last epochs", known)
