"""A table of schedules that is measured on few matrices: which ones, how long, and what is written."""

from __future__ import annotations

import gzip
import hashlib
import sys
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spmark.impls.liteform.schedule import ScheduleTable
from spmark.impls.runtime.device import shipped
from spmark.records.rowfile import read_rows
from spmark.studies.contracts import CalibrationJob
from spmark.studies.liteform.schedules import ScheduleRow
from spmark.studies.table import find_contract

ROWS = Path(str(files("spmark.impls.liteform"))) / "schedules" / "nvidia-h200.ndjson.gz"
NAMES = ["seeded/banded_01", "seeded/banded_02", "seeded/mesh_06", "seeded/power_law_00"]


@pytest.mark.full
def test_kinds_take_turns_until_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {(row.matrix, row.dtype, row.width): row for row in read_rows(ROWS, ScheduleRow)}
    timed: list[Any] = []

    class Timer:
        def __init__(self, matrix: Any, device: Any, dtype: Any, width: int) -> None:
            self.key = dtype, width

        def row(self, name: str) -> ScheduleRow:
            timed.append((name, *self.key))
            return known[timed[-1]]

    fake = SimpleNamespace(ScheduleTimer=Timer, compile_schedules=lambda *_: None)
    monkeypatch.setitem(sys.modules, "spmark.studies.liteform.gpu", fake)
    method = find_contract("calibration", "liteform")

    def constants(seconds: float) -> Any:
        timed.clear()
        matrices = lambda names: ((name, SimpleNamespace(csr=None)) for name in names)  # noqa: E731
        return method.calibrate(
            CalibrationJob(device=shipped("nvidia-h200"), seconds=seconds, names=NAMES, load=matrices)
        )

    constants(0)
    assert [name for name, *_ in timed] == ["seeded/power_law_00"] * 7, "one matrix, and once to warm up"
    made = constants(60)
    assert list(dict.fromkeys(name for name, *_ in timed)) == sorted(NAMES, key=lambda name: name[-2:])
    table = ScheduleTable.model_validate_json(made.files[".json"])
    rows = made.files[".ndjson.gz"]
    assert table.device == "nvidia-h200"
    assert table.made_with.endswith(f"24 rows of 4 matrices, SHA-256 {hashlib.sha256(rows).hexdigest()}")
    (tmp_path / "rows.ndjson").write_bytes(gzip.decompress(rows))
    assert list(read_rows(tmp_path / "rows.ndjson", ScheduleRow)) == [known[key] for key in timed[1:]]
