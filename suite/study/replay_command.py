"""``spmark study replay``: how well a cost model orders the configs that recorded searches measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from spmark.impls.core.errors import RecordError, SweepError
from spmark.impls.core.files import written
from spmark.impls.core.untrusted import reading
from spmark.records.schema import CandidateRow
from spmark.suite.cli.console import answer, console, say, table, working
from spmark.suite.study.collected import Recorded, Searched
from spmark.suite.study.replay import Replayed

if TYPE_CHECKING:
    import pandas as pd

    from spmark.suite.study.collected import LeftOut


T4 = "t4"


def replay_records(
    paths: Sequence[Path], model: str, seed: int, only: Sequence[str], export: tuple[str, Path] | None, *, as_json: bool
) -> None:
    """Score, judge and print; write the export, of which format and file are given, where one is asked for.

    Raises
    ------
    RecordError
        There are no records, a file cannot be read, or the export cannot be written.
    DatasetError
        Collected samples of several origins stand in one path.
    SweepError
        The model, a filter or the format of the export is unknown.
    """
    from spmark.report.analysis.replay import summary
    from spmark.suite.study.replay import judged, replay

    if export and export[0] != T4:
        raise SweepError(f"--export {export[0]}: expected the format {T4}, found {export[0]!r}")
    screen = console(as_json)
    with working(screen, f"replaying {model}"):
        replayed = replay(paths, model, seed, only)
    cases = judged(replayed)
    groups = _rows(summary(cases)) if len(cases) else []
    notes = {one.case.implementation: one.note for one, _ in replayed.scored if one.note}
    if export:
        _write(replayed, export[1])
    if as_json:
        told = {"model": model, "seed": seed, "summary": _plain(groups), "cases": _plain(_rows(cases))}
        answer(told | {"notes": notes, "left_out": [asdict(one) for one in replayed.left_out]})
        return
    if groups:
        screen.print(table(f"{model}: measured configs, as it orders them", list(map(_shown, groups))))
    for platform, note in notes.items():
        say(screen, escape(f"{platform}: {note}"))
    if replayed.left_out:
        screen.print(table("Cases that cannot be replayed", _counted(replayed.left_out), plain=True))
    if not (groups or replayed.left_out):
        say(screen, "no search of these records has measured a config: there is nothing to replay")
    if export:
        say(screen, escape(str(export[1])))


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Give a row of the summary as people read it."""
    return {
        "implementation": row["implementation"],
        "source": row["source"],
        "cases": row["cases"],
        "configs": row["candidates"],
        "regret, mean": f"{row['regret']:.1%}",
        "median": f"{row['regret_median']:.1%}",
        "tuned": f"{row['tuned_regret']:.1%}",
        "by chance": f"{row['chance_regret']:.1%}",
        "Kendall's tau": f"{row['kendall']:.2f}",
        **{f"best in {size}": f"{row[f'top_{size}']:.0%}" for size in (1, 5, 10)},
    }


def _plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give rows for JSON, which has no NaN."""
    return [
        {name: None if isinstance(value, float) and isnan(value) else value for name, value in row.items()}
        for row in rows
    ]


def _counted(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    counts = Counter(one.reason for one in left_out)
    example = {one.reason: f"{one.case_id}: {one.detail}" if one.detail else one.case_id for one in left_out[::-1]}
    return [{"cases": count, "reason": reason, "such as": example[reason]} for reason, count in counts.most_common()]


def _write(replayed: Replayed, file: Path) -> None:

    with reading(file, "numbers that JSON has", RecordError):
        text = json.dumps(t4(replayed), allow_nan=False)
    with written(file, RecordError) as part:
        part.write_text(text + "\n", encoding="utf-8")


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
