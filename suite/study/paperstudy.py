"""The study of a paper within ``spmark reproduce``: collect a small set, train and judge, as single commands would do.

What is collected and trained stays on disk, and the same command goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from spmark.impls.core.errors import SpmarkError
from spmark.suite.plan.papers import Collected, PaperStudy
from spmark.suite.study.collect import CollectRequest, collect_samples

_LEAST_S = 1.0
"""Seconds that have to be left for another part to begin."""


@dataclass(frozen=True)
class StudyState:
    """How far the study of one target is."""

    target: str
    folder: Path
    """Of its facts."""
    left: int
    """Problems to collect, or trainings; 0 where the study is whole."""
    why: str = ""
    """Why the study cannot go on."""


def run_studies(study: PaperStudy, targets: list[str], folder: Path, ends: float, as_json: bool) -> list[StudyState]:
    """Run the study of each target until all are whole or the time is up.

    Parameters
    ----------
    study : PaperStudy
    targets : list of str
        Out of ``study.targets``.
    folder : Path
        For samples, and for facts and models of each target.
    ends : float
        Time of the monotonic clock, in seconds, after which no problem and no epoch begins.
    as_json : bool
        Standard output is for JSON: messages go to standard error.
    """
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        return [_run(study, target, folder, ends) for target in targets]


def _run(study: PaperStudy, target: str, folder: Path, ends: float) -> StudyState:
    facts = folder / "study" / target
    try:
        for platform, role, part in _parts(study, target):
            if left := _collect(study, platform, folder / "samples" / role, part, ends):
                return StudyState(target, facts, left)
        return StudyState(target, facts, _compare(study, target, folder / "samples", facts, ends))
    except SpmarkError as error:
        return StudyState(target, facts, 1, str(error))


def _parts(study: PaperStudy, target: str) -> Iterator[tuple[str, str, Collected]]:
    """Give the platform, the role and the problems of each collection that a study rests on."""
    yield study.source, "source", study.pretraining
    yield target, "target", study.fine_tuning
    yield target, "evaluation", study.evaluation


def _collect(study: PaperStudy, platform: str, out: Path, part: Collected, ends: float) -> int:
    """Collect samples; gives how many problems are left."""
    budget = _budget(ends)
    if not budget:
        return 1
    overrides = (f"ops={json.dumps(list(study.ops))}",)
    return collect_samples(
        CollectRequest(platform, part.sweep, overrides, study.configs, budget, part.shard, out, as_json=False)
    )


def _compare(study: PaperStudy, target: str, samples: Path, out: Path, ends: float) -> int:
    """Train and judge; gives how many trainings are left."""
    from spmark.suite.study.transfer import StudyRequest, study_transfer

    budget = _budget(ends)
    if not budget:
        return 1
    return study_transfer(
        StudyRequest(
            method=study.method,
            source=[samples / "source" / study.source],
            target=[samples / "target" / target],
            evaluation=[samples / "evaluation" / target],
            source_matrices=study.source_matrices,
            target_matrices=study.target_matrices,
            methods=study.methods,
            op="",
            seeds=study.seeds,
            epochs=study.epochs,
            budget=budget,
            shard="1/1",
            out=out,
            as_json=False,
        )
    )


def _budget(ends: float) -> str:
    """Give the time that is left as options take it; empty where the time is up."""
    left_s = ends - time.monotonic()
    return f"{left_s:.0f}s" if left_s >= _LEAST_S else ""
