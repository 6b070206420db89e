"""LO-SpMM's side of `spmark study label` and `study train`: kernels for the rank model, proxies, the model itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import pandas as pd

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm.rank import RankCard
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.race import Race
from spmark.records.rowfile import read_rows
from spmark.studies.contracts import LabelJob, Outcome, TrainingJob
from spmark.studies.lo_spmm import labels
from spmark.studies.lo_spmm.compared import Compared, compare, spread_out
from spmark.studies.lo_spmm.labels import TileLabels, label_all, prepare, read_labels
from spmark.studies.lo_spmm.rates import NAMES, fitted, held_out, priced
from spmark.studies.lo_spmm.training import train
from spmark.studies.rows import append_rows, digest_of

_log = logging.getLogger(__name__)
PROXIES = "proxies"
"""Alternative to labels: measures how well proxies stand for kernels."""
_COMPARED = "proxies.jsonl"
LAYERS: Mapping[str, int] = {
    "resnet50_64x576@0.9": 50_176,
    "resnet50_256x64@0.8": 50_176,
    "resnet50_128x256@0.9": 50_176,
    "resnet50_512x128@0.9": 12_544,
    "resnet50_256x512@0.9": 12_544,
    "mobilenetv2_1280x320@0.95": 784,
    "mobilenetv2_576x96@0.9": 3_136,
    "shufflenetv2_1024x464@0.95": 784,
    "bert_768x768@0.98": 512,
    "resnet50_512x1024@0.98": 3_136,
}
"""Pruned layers, with J, on which proxies are compared with kernels. They are of every network and width, and short
enough for ten kernels each."""


class KernelLabels:
    """Times kernels of layers and of random matrices, or compares proxies (`spmark.studies.contracts`)."""

    patterns: ClassVar[Sequence[str]] = ("tuning_layers",)
    others: ClassVar[Sequence[str]] = (PROXIES,)

    def measure(self, job: LabelJob) -> Outcome:
        """Measure until everything has a row or the time is up."""
        if job.instead == PROXIES:
            return _compare_proxies(job)
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
        files = [path for path in job.files if path.name != _COMPARED]
        rows = read_labels(files)
        regrets, factors = _rates(rows)
        about = RankCard(
            name=job.name, gpu=rows[0].device, labels_sha256=digest_of(files), groups=0, candidates=0, ranges={},
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


def _race(space: TileSpace, device: DeviceSpec, proxies: bool = False) -> Race[Any]:
    from spmark.impls.lo_spmm.gpu import open_race
    from spmark.impls.lo_spmm.machine import Emitter
    from spmark.impls.runtime.target import open_target

    return open_race(space, open_target(device), emitter=Emitter.PTX, proxies=proxies)


def _compare_proxies(job: LabelJob) -> Outcome:
    file = job.folder / "lo_spmm" / _COMPARED
    rows = {row.layer: row for row in read_rows(file, Compared)} if file.is_file() else {}
    layers = {f"{name} J{width}": name for name, width in job.own(list(LAYERS.items()))}
    missing = {f"dnn_layers/{name}": layer for layer, name in layers.items() if layer not in rows}

    def make(layer: str, matrix: Any) -> Compared:
        space = explore(Problem(Op.SPMM, matrix.csr, LAYERS[layers[layer]]), job.device, Reordering.GREEDY, Pins())
        rows[layer] = compare(layer, space, partial(_race, space, job.device), spread_out(space))
        return rows[layer]

    append_rows(file, ((missing[name], matrix) for name, matrix in job.load(list(missing))), make, job.ends)
    told = [
        {"layer": row.layer, "candidates": len(row.real_us), "tau": row.tau, "tau of the estimate": row.tau_of_estimate,
         "regret": row.regret}
        for row in rows.values()
    ]  # fmt: skip
    mean = float(pd.Series([row.tau for row in rows.values()], dtype=float).mean())
    return Outcome(
        answer={"file": file, "kendall_tau": mean, "layers": told},
        line=str(file),
        title=f"Proxies and the kernels they stand for: Kendall's tau {mean:.2f} on average",
        rows=told,
        left=sum(layer not in rows for layer in layers),
    )
