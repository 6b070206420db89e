"""Every file that was committed or written once is still read, and nothing that it says is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_facts import FROZEN, ROOT, read

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.liteform import predictor
from spmark.impls.liteform.schedule import read_table
from spmark.impls.lo_spmm.rank import RankModel
from spmark.records.rowfile import read_rows
from spmark.records.schema import CandidateRow, EnvironmentRow, Measurement, from_version_1
from spmark.records.unpack import ARCHIVES, unpacked_lines
from spmark.report.analysis.run_spread import read_spread
from spmark.report.analysis.tiles import read_agreement
from spmark.report.candidates import FETCH, HOME, MANIFEST, read_asset
from spmark.report.claims.published import load_published
from spmark.report.claims.study import read_study
from spmark.report.records import current, load_records
from spmark.studies.liteform.labels import MatrixLabels, read_labels
from spmark.studies.lo_spmm import labels as lo_labels
from spmark.suite.plan.papers import read_papers
from spmark.suite.run.provenance import RunRow

pytestmark = pytest.mark.full

ROWS: dict[str, int] = read("rows.json")
APART = {f"{HOME}/{one.path}" for one in read_asset(ROOT / HOME / MANIFEST).files}
"""Files of which a clone has a sample."""
SIDES = {"environments": EnvironmentRow, "candidates": CandidateRow, "runs": RunRow}
KINDS = {path: SIDES.get(Path(path).name.partition(".")[0], Measurement) for path in ROWS}
MANY = 30_000
"""Rows of candidates, beyond which one in `STEP` is looked at by the model: all are alike."""
STEP = 25


def lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        found = unpacked_lines(file, path) if path.suffix in ARCHIVES else file
        yield from (line for line in found if line.strip())


def lost(before: Any, after: Any) -> bool:
    """Say whether ``after`` lacks something that ``before`` says; it may say more."""
    if isinstance(before, dict):
        return not isinstance(after, dict) or any(
            key not in after or lost(one, after[key]) for key, one in before.items()
        )
    if isinstance(before, list):
        return not isinstance(after, list) or len(before) != len(after) or any(map(lost, before, after))
    return bool(before != after)


@pytest.mark.parametrize("path", ROWS)
def test_rows_are_read_without_loss(path: str) -> None:
    if path in APART and not (ROOT / path).exists():
        pytest.skip(f"{path} is published apart: `{FETCH}` brings it")
    kind, step = KINDS[path], STEP if ROWS[path] > MANY else 1
    count = 0
    for line in lines(ROOT / path):
        count += 1
        if count % step:
            continue
        row = json.loads(line)
        again = kind.model_validate_json(line).model_dump(mode="json")
        if kind is Measurement and "spec" not in row:
            row = from_version_1(row)
        elif kind is RunRow:
            row.pop("sweep_digest", None)  # follows from the sweep
        assert not lost(_times(row), _times(again)), f"{path}: row {count}"
    assert count == ROWS[path]


def _times(value: Any) -> Any:
    """Write times as pydantic does: +00:00 and Z are one."""
    if isinstance(value, dict):
        return {key: _times(one) for key, one in value.items() if key != "started_at"} | (
            {"started_at": str(value["started_at"]).replace("+00:00", "Z")} if "started_at" in value else {}
        )
    return value


def test_a_report_reads_records_of_every_kind() -> None:
    frame = current(load_records([ROOT / "report/reference/h200/stile_table6_ablation"]))
    assert len(frame) == len(set(frame["case_id"])) > 10
    assert frame["facts"].notna().all()


DATA: dict[str, Callable[[Path], object]] = {
    "datasets/sweeps/*.yaml": lambda path: Sweep.load(path).matrices,
    "datasets/sweeps/papers/*.yaml": lambda path: read_papers(str(path)),
    "report/claims/*.yaml": lambda path: load_published(path.stem).claims,
    "report/spreads/*.json": lambda path: read_spread(path).trends,
    "report/reference/candidates.json": read_asset,
    "report/reference/tiles/*.json": read_agreement,
    "report/reference/cpu/*/study.json": read_study,
    "impls/liteform/models/*.npz": predictor.load,
    "impls/liteform/schedules/*.json": lambda path: read_table(path).entries,
    "impls/lo_spmm/models/*.json": RankModel.load,
    "impls/stile/calibrations/*.json": lambda path: DeviceSpec.load(path).tables,
    "impls/runtime/devices/*.json": DeviceSpec.load,
}


@pytest.mark.parametrize("pattern", DATA)
def test_data_that_ship_are_read(pattern: str) -> None:
    assert [path for path in ROOT.glob(pattern) if not DATA[pattern](path)] == []
    assert list(ROOT.glob(pattern))


def test_labels_of_old_are_read() -> None:
    """Makers of labels keep them, mostly outside of the tree: each file holds a row as it was written."""
    (row,) = read_labels([FROZEN / "labels_liteform.jsonl"])
    assert isinstance(row, MatrixLabels)
    assert row.tried[0].samples_us
    (other,) = lo_labels.read_labels([FROZEN / "labels_lo_spmm.jsonl"])
    assert other.tried[0].samples_us
    for path, kind in (("labels_liteform.jsonl", MatrixLabels), ("labels_lo_spmm.jsonl", lo_labels.TileLabels)):
        (line,) = lines(FROZEN / path)
        # What was not there yet has its default.
        assert [one.model_dump(mode="json", exclude_unset=True) for one in read_rows(FROZEN / path, kind)] == [
            json.loads(line)
        ]
