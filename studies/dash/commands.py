"""The part of ``spmark study train`` that belongs to DASH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from spmark.impls.core.errors import BuildError, DatasetError, SweepError, none_of
from spmark.impls.core.files import written
from spmark.impls.dash.finding import own_model
from spmark.impls.dash.waco import Transfer
from spmark.impls.dash.weights import TrainedModel, load
from spmark.impls.dash.withtorch import best_device
from spmark.studies.collected import read_collected
from spmark.studies.contracts import Outcome, TransferJob
from spmark.studies.dash.compare import compare
from spmark.studies.dash.methods import FINE_TUNING, METHODS, MODELS, PRETRAINING, Curves, Maker
from spmark.studies.dash.samples import Gathered, check_apart, gather
from spmark.studies.dash.training import Session
from spmark.studies.rows import Row


class CurvePoint(Row):
    """A line of a model's curves."""

    phase: str
    epoch: int
    """Counted from 1."""
    values: dict[str, float]
    """By the names of `Epoch`."""


class TransferTraining:
    """DASH and what stands beside it (`spmark.studies.contracts`)."""

    models: ClassVar[Sequence[str]] = tuple(MODELS)
    methods: ClassVar[Sequence[str]] = METHODS
    study = staticmethod(compare)

    def train(self, job: TransferJob) -> Outcome:
        """Train, and write the model, its curves and a checkpoint of each phase side by side.

        Raises
        ------
        SweepError
            There is no such model.
        DatasetError
            Samples are broken or too few, both platforms are the same, or a held-out matrix is trained on, or may have
            been by the given featuriser.
        UnsupportedError
            PyTorch or safetensors is not installed.
        BuildError
            The model cannot be written, or a checkpoint is of another training.
        """
        name = job.model or "dash"
        if name not in MODELS:
            raise SweepError(none_of("a model", name, MODELS))
        variant = MODELS[name]

        def gathered(files: Sequence[Path], matrices: int | None = None) -> Gathered:
            return gather(read_collected(files, job.op), job.load, matrices=matrices)

        source = gathered(job.source, job.source_matrices)
        target = gathered(job.target, job.target_matrices) if job.target else None
        held_out = gathered(job.held_out) if job.held_out else None
        check_apart(source, target, held_out)
        if not target and not (variant.pretrained and variant.fine_tuned):
            raise DatasetError(f"{name}: expected samples of a target platform, found none")
        maker = Maker(variant, [source, target] if target else [source], job.epochs, job.seed)
        subject = (target or source).samples.subject
        out = job.out or own_model(subject.platform, subject.op)
        given = _featuriser(job.featuriser, source) if job.featuriser else None

        def session(phase: str = FINE_TUNING) -> Session:
            is_first, is_last = phase == PRETRAINING or not variant.pretrained, phase == FINE_TUNING or not target
            return Session(
                held_out=maker.seen(held_out) if held_out and is_last else None,
                checkpoint=out.with_suffix(f".{phase}.checkpoint"),
                featuriser_of=given if is_first else None,
                device=best_device(),
                command=job.command,
                tell=lambda line: job.tell(f"{phase}, {line}"),
            )

        before = maker.trained(source, session(PRETRAINING)) if variant.pretrained else None
        model, curves = maker.in_phases(before, target if variant.fine_tuned else None, session, target)
        return _told(model, curves, out)


def _featuriser(path: Path, source: Gathered) -> TrainedModel:
    """Read a model whose featuriser is taken over; it must have learnt from the source samples, and from no others."""
    model = load(path, source.samples.subject, best_device())
    known = {source.samples.digest, *(source.samples.for_waco(way).digest for way in Transfer)}
    if strange := [card for card in model.card.trained_on if card.sha256 not in known]:
        raise DatasetError(
            f"{path}: expected a featuriser that learnt from the {len(source.rows)} source matrices alone, found one "
            f"that learnt from {strange[0].matrices} others of {strange[0].platform}: it may know held-out matrices"
        )
    return model


def _told(model: TrainedModel, curves: Curves, out: Path) -> Outcome:
    """Write model and curves."""
    card = model.save(out)
    points = [
        CurvePoint(phase=phase, epoch=number, values=epoch.known())
        for phase, curve in curves.items()
        for number, epoch in enumerate(curve, 1)
    ]
    file = out.with_suffix(".curves.jsonl")
    with written(file, BuildError) as part:
        part.write_text("".join(point.model_dump_json() + "\n" for point in points), encoding="utf-8")
    answer = {"file": out, "curves": file, "card": card.model_dump(mode="json")}
    rows = [{"phase": phase, **curve[-1].known()} for phase, curve in curves.items() if curve]
    known = [{name: row.get(name) for name in dict.fromkeys(key for one in rows for key in one)} for row in rows]
    return Outcome(answer, f"{out}\n{file}", f"{card.subject.op} on {card.subject.platform}, last epochs", known)
