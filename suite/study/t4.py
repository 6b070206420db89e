"""Recorded searches in Kernel Tuner's T4 format, version 1.0.0: one result for each config that was tried.

T4 is the output format of auto-tuners that Kernel Tuner writes and reads (its `schema/T4/1.0.0/results-schema.json`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.record import CandidateRow
from spmark.suite.study.replay import Replayed
from spmark.suite.study.searched import Recorded, Searched

SCHEMA_VERSION = "1.0.0"
_WORDS = {"wrong result": "correctness", "does not compile": "compile"}
"""T4's word for a config, by words of the reason why it was not timed; other configs break a constraint."""


def t4(found: Replayed) -> dict[str, Any]:
    """Give the content of a T4 file; its times are milliseconds, as Kernel Tuner's are.

    Returns
    -------
    dict
        Of plain JSON. The measurements of a result name its case, its device and, where there is one, its score.
    """
    unscored = ((one, np.full(len(one.measured), np.nan)) for one in found.unscored)
    return {
        "schema_version": SCHEMA_VERSION,
        "results": [result for pair in chain(found.scored, unscored) for result in _results(*pair)],
    }


def _results(one: Searched, scores: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    for row, score in zip(one.measured, scores, strict=True):
        told = [] if np.isnan(score) else [_measurement("score", float(score))]
        time = _measurement("time", float(np.median(row.samples_us)) * 1e-3, "ms")
        yield _result(one, row, "correct", [time, *told])
    for row in one.failed:
        word = next((word for reason, word in _WORDS.items() if reason in row.reason), "constraints")
        yield _result(one, row, word, [_measurement("reason", row.reason)])


def _result(one: Searched, row: CandidateRow, invalidity: str, told: list[dict[str, Any]]) -> dict[str, Any]:
    device = [_measurement("device", one.machine)] if one.machine else []
    return {
        **({"timestamp": one.record.started_at.isoformat()} if isinstance(one, Recorded) else {}),
        "configuration": row.config,
        "objectives": ["time"],
        "times": {"runtimes": [us * 1e-3 for us in row.samples_us]},
        "invalidity": invalidity,
        "correctness": float(invalidity == "correct"),
        "measurements": [*told, _measurement("case", one.case_id), *device],
    }


def _measurement(name: str, value: float | str, unit: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}
