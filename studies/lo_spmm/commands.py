"""LO-SpMM's side of `spmark study label` and `study train`: kernels for the rank model, and the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.tuning.race import Race
from spmark.records.rowfile import read_rows
from spmark.studies.contracts import LabelJob, Outcome, TrainingJob
from spmark.studies.lo_spmm import labels
from spmark.studies.lo_spmm.labels import TileLabels, read_labels
from spmark.studies.lo_spmm.training import train
from spmark.studies.rows import append_rows, digest_of


class KernelLabels:
    """Times kernels of random matrices (`spmark.studies.contracts`)."""

    patterns: ClassVar[Sequence[str]] = ()

    def measure(self, job: LabelJob) -> Outcome:
        """Measure problems without a row, in this shard's file or in another one, until the time is up."""
        file = job.folder / "lo_spmm" / f"shard-{job.part}.jsonl"
        rows = (row for path in file.parent.glob("shard*.jsonl") for row in read_rows(path, TileLabels))
        have = {row.seed for row in rows if not row.matrix}
        todo = [seed for seed in job.own(range(labels.GROUPS)) if seed not in have]

        def make(seed: int, _: int) -> TileLabels:
            space = explore(labels.synthetic(seed), job.device, Pins(split=1))
            return labels.measure(seed, space, _race(space, job.device))

        return job.told(file, len(todo), append_rows(file, ((seed, seed) for seed in todo), make, job.ends))


class RankTraining:
    """Trains the rank model (`spmark.studies.contracts`)."""

    ending: ClassVar[str] = ".json"
    published: ClassVar[str] = ""

    def train(self, job: TrainingJob) -> Outcome:
        """Train on the kernels of random matrices; the card scores models on the problems that each did not see."""
        if job.as_published:
            raise UnsupportedError("expected no --as-published: the rank model's features are the paper's in any case")
        rows = read_labels(job.files)
        about = {"name": job.name, "gpu": rows[0].device, "labels_sha256": digest_of(job.files)}
        card = train([row for row in rows if not row.matrix], about, job.command).save(job.out).card
        return Outcome(
            answer={"file": job.out, "card": card.model_dump()},
            line=f"{job.out}: {card.groups} problems, {card.candidates} candidates; held out: {card.held_out}",
        )


def _race(space: TileSpace, device: DeviceSpec) -> Race[Any]:
    from spmark.impls.lo_spmm.gpu import open_race
    from spmark.impls.lo_spmm.machine import Emitter
    from spmark.impls.runtime.target import open_target

    return open_race(space, open_target(device), emitter=Emitter.PTX)
