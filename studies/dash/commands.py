"""The part of ``spmark study train`` that belongs to DASH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spmark.impls.dash.finding import own_model
from spmark.impls.dash.withtorch import best_device
from spmark.studies.collected import read_collected
from spmark.studies.contracts import Outcome, TransferJob
from spmark.studies.dash.compare import compare
from spmark.studies.dash.methods import FINE_TUNING, MODELS, PRETRAINING, Maker
from spmark.studies.dash.samples import Gathered, check_apart, gather
from spmark.studies.dash.training import Session


class TransferTraining:
    """DASH and what stands beside it (`spmark.studies.contracts`)."""

    study = staticmethod(compare)

    def train(self, job: TransferJob) -> Outcome:
        """Train, and write the model and a checkpoint of each phase side by side.

        Raises
        ------
        DatasetError
            Samples are broken or too few, or both platforms are the same.
        UnsupportedError
            PyTorch or safetensors is not installed.
        BuildError
            The model cannot be written, or a checkpoint is of another training.
        """

        def gathered(files: Sequence[Path], matrices: int) -> Gathered:
            return gather(read_collected(files, job.op), job.load, matrices=matrices)

        phases = {PRETRAINING: gathered(job.source, job.source_matrices)}
        if job.target:
            phases[FINE_TUNING] = gathered(job.target, job.target_matrices)
        check_apart(phases[PRETRAINING], phases.get(FINE_TUNING), None)
        maker, model, rows = Maker(MODELS["dash"], [*phases.values()], job.epochs, job.seed), None, []
        subject = [*phases.values()][-1].samples.subject
        out = job.out or own_model(subject.platform, subject.op)
        for phase, samples in phases.items():
            session = Session(
                checkpoint=out.with_suffix(f".{phase}.checkpoint"),
                device=best_device(),
                command=job.command,
                tell=job.tell,
            )
            model, curve = maker.trained(samples, session, model)
            rows.append({"phase": phase, **curve[-1].known()})
        assert model
        card = model.save(out)
        title = f"{subject.op} on {subject.platform}, last epochs"
        return Outcome({"file": out, "card": card.model_dump(mode="json")}, str(out), title, rows)
