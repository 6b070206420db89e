"""What a study writes down about one task: curves, seconds, and the result of each matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.sixdigits import six_digits
from spmark.studies.collected import CollectedRow
from spmark.studies.dash.checkpoints import Epoch
from spmark.studies.dash.gathering import Gathered
from spmark.studies.dash.judging import Halves
from spmark.studies.dash.ranking import Pairs
from spmark.studies.dash.tasks import StudyTask
from spmark.studies.orders import kendall
from spmark.studies.transferfacts import TransferCost, TransferCurve, TransferResult


@dataclass(frozen=True)
class TrainingMachine:
    """What trains and scores."""

    name: str
    cores: int


@dataclass(frozen=True)
class TaskFacts:
    """Facts about one task.

    Parameters
    ----------
    task : StudyTask
    source : Gathered, optional
        What the task sees of the source platform.
    target : Gathered, optional
        What the task sees of the target platform.
    judges : Gathered
        What the task is judged on.
    """

    task: StudyTask
    source: Gathered | None
    target: Gathered | None
    judges: Gathered

    def curve(self, phase: Literal["pre-training", "fine-tuning"], epochs: Sequence[Epoch]) -> list[TransferCurve]:
        """Give a fact for each epoch."""
        seconds = accumulate(epoch.seconds for epoch in epochs)
        return [
            TransferCurve(
                **self._origin(),
                **self._sizes(),
                phase=phase,
                epoch=number,
                values=six_digits(one.known()),
                seconds=six_digits(sum_s),
            )
            for number, (one, sum_s) in enumerate(zip(epochs, seconds, strict=True), 1)
        ]

    def cost(
        self,
        what: Literal["pretrain", "finetune", "features", "score"],
        seconds: float,
        of: Gathered,
        on: TrainingMachine,
    ) -> TransferCost:
        """Say what a part took."""
        count = of.samples.count
        return TransferCost(
            **self._origin(), what=what, seconds=six_digits(seconds), matrices=len(of.rows), configs=count,
            cores=on.cores, machine=on.name,
        )  # fmt: skip

    def collected(self, of: Gathered) -> TransferCost:
        """Say what collecting took: all samples, without building and checking."""
        samples = [
            {one.chosen_by_us, one.valued_by_us} if len(one.chosen_by_us) == 1 else (one.chosen_by_us, one.valued_by_us)
            for row in of.rows
            for one in row.configs
        ]  # a simulated time stands in both halves
        seconds = 1e-6 * sum(sum(half) for halves in samples for half in halves)
        return TransferCost(
            **self._origin(), what="collect", seconds=six_digits(seconds), matrices=len(of.rows),
            configs=of.samples.count, cores=len(of.rows[0].cores), machine=of.rows[0].machine,
        )  # fmt: skip

    def result(self, row: CollectedRow, nnz: int, scores: NDArray[np.float64]) -> TransferResult:
        """Judge the scores of a row's configs."""
        halves = Halves.of(row)
        ordered = {"": scores, "_ceiling": halves.chosen_by_s}
        pairs = Pairs.of(halves.valued_by_s, self.judges.noise)
        opa: dict[str, Any] = {f"opa{of}": _known(pairs.share_in_order(order)) for of, order in ordered.items()}
        tau: dict[str, Any] = {f"tau{of}": _known(kendall(order, halves.valued_by_s)) for of, order in ordered.items()}
        times = {
            "default_us": 1e6 * float(halves.valued_by_s[halves.default]), "optimum_us": 1e6 * halves.optimum,
            "top1_us": 1e6 * halves.best(scores, 1), "top5_us": 1e6 * halves.best(scores, 5),
        }  # fmt: skip
        return TransferResult(
            **self._origin(), **self._sizes(), **six_digits(opa | tau | times), matrix=row.matrix,
            pattern_sha256=row.pattern_sha256, nnz=nnz, configs=len(scores) - 1, machine=row.machine, note=row.note,
        )  # fmt: skip

    def _origin(self) -> dict[str, Any]:
        subject = self.judges.samples.subject
        source = self.source.samples.subject.platform if self.source else ""
        of = {"method": self.task.method, "seed": self.task.seed}
        return {**of, "source": source, "target": subject.platform, "op": subject.op}

    def _sizes(self) -> dict[str, Any]:
        return {"source_matrices": self.task.source_matrices, "target_matrices": self.task.target_matrices}


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
