"""LO-SpMM's side of `spmark study label` and `study train`: kernels for the rank model, and the model itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Csr
from spmark.impls.lo_spmm.rank import RankCard
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.race import Race
from spmark.studies.contracts import LabelJob, Outcome, TrainingJob
from spmark.studies.lo_spmm import labels
from spmark.studies.lo_spmm.labels import TileLabels, label_all, prepare, read_labels
from spmark.studies.lo_spmm.rates import NAMES, fitted, held_out, priced
from spmark.studies.lo_spmm.training import train
from spmark.studies.rows import digest_of

_log = logging.getLogger(__name__)


class KernelLabels:
    """Times kernels of layers and of random matrices (`spmark.studies.contracts`)."""

    patterns: ClassVar[Sequence[str]] = ("tuning_layers",)
    others: ClassVar[Sequence[str]] = ()

    def measure(self, job: LabelJob) -> Outcome:
        """Measure until everything has a row or the time is up."""
        file = job.folder / "lo_spmm" / f"shard-{job.part}.jsonl"
        layers = _layers(job)
        keys = [(name, width) for name in layers for width in labels.LAYER_WIDTHS]
        keys += [("", seed) for seed in job.own(range(labels.GROUPS))]
        spaces, race = partial(prepare, device=job.device, layers=layers), partial(_race, device=job.device)
        made, left = label_all(file, keys, spaces, race, job.ends)
        return Outcome(
            answer={"file": file, "made": made, "left": left}, line=f"{file}: {made} made, {left} left", left=left
        )


class RankTraining:
    """Trains the rank model and judges the estimate's rates (`spmark.studies.contracts`)."""

    ending: ClassVar[str] = ".json"
    published: ClassVar[str] = ""

    def train(self, job: TrainingJob) -> Outcome:
        """Train on the kernels of random matrices; the card scores models on the problems that each did not see.

        The card also says what the estimate's choice costs on all rows that keep their work, with the shipped rates and
        with rates that are fitted to the other rows, and the factors of rates that are fitted to all of these rows.
        """
        if job.as_published:
            raise UnsupportedError("expected no --as-published: the rank model's features are the paper's in any case")
        rows = read_labels(job.files)
        regrets, factors = _rates(rows)
        about = RankCard(
            name=job.name, gpu=rows[0].device, labels_sha256=digest_of(job.files), groups=0, candidates=0, ranges={},
            held_out=regrets, made_with=factors | {"command": job.command},
        )  # fmt: skip
        card = train([row for row in rows if not row.matrix], about).save(job.out).card
        return Outcome(
            answer={"file": job.out, "card": card.model_dump()},
            line=f"{job.out}: {card.groups} problems, {card.candidates} candidates; held out: {card.held_out}",
        )


def _rates(rows: Sequence[TileLabels]) -> tuple[dict[str, float], dict[str, str]]:
    """Judge the estimate's rates for a card; empty where the rows keep no work or their GPU has no calibration here."""
    calibration = shipped_calibration(rows[0].device)
    problems = priced(rows, DeviceSpec.load(calibration)) if calibration.is_file() else []
    if not problems:
        return {}, {}
    shipped, refitted = held_out(problems)
    factors = ", ".join(f"{name} {factor:.3g}" for name, factor in zip(NAMES, fitted(problems), strict=True))
    regrets = {"regret_of_estimate": round(shipped, 4), "regret_of_refitted_estimate": round(refitted, 4)}
    return regrets, {"factors_of_refitted_rates": factors}


def _layers(job: LabelJob) -> dict[str, Csr]:
    """Load this shard's pruned layers; one that is missing or large is told and left out."""
    layers: dict[str, Csr] = {}
    for name, matrix in job.load(list(job.own(job.names))):
        if isinstance(matrix, str):
            _log.warning("%s cannot be measured: %s", name, matrix)
        elif matrix.csr.nnz > labels.LAYER_NNZ:
            _log.warning("%s is not measured: %d non-zeros are more than %d", name, matrix.csr.nnz, labels.LAYER_NNZ)
        else:
            layers[name] = matrix.csr
    return layers


def _race(space: TileSpace, device: DeviceSpec) -> Race[Any]:
    from spmark.impls.lo_spmm.gpu import open_race
    from spmark.impls.lo_spmm.machine import Emitter
    from spmark.impls.runtime.target import open_target

    return open_race(space, open_target(device), emitter=Emitter.PTX)
