"""Which entry of a table serves a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spmark.impls.core.files import constants_file
from spmark.impls.core.problem import DType
from spmark.impls.liteform.schedule import (
    CellSchedule,
    ScheduleEntry,
    ScheduleTable,
    nearest,
    schedule_for,
    table_for,
)

ALONE = CellSchedule(4, 8, 16)
SHARED = CellSchedule(4, 8, 16, together=64)


def entry(nnz: int, max_width: int, schedule: CellSchedule = ALONE, **facts: Any) -> ScheduleEntry:
    return ScheduleEntry(
        **{"dtype": "float32", "width": 64, "nnz": nnz, "max_width": max_width, **facts}, schedule=schedule
    )


def test_a_gpu_without_a_shipped_table_has_this_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    own = constants_file("liteform", "some-gpu")
    assert table_for.__wrapped__("some-gpu") is None
    shipped = table_for("nvidia-h200")
    assert shipped is not None
    own.parent.mkdir(parents=True)
    own.write_text(shipped.model_copy(update={"device": "some-gpu"}).model_dump_json(), encoding="utf-8")
    assert table_for.__wrapped__("some-gpu").entries == shipped.entries


def test_j_comes_before_size_and_the_order_of_rows_before_j() -> None:
    wanted = entry(1000, 64)
    far, other_j, gathered = entry(10**7, 8), entry(1000, 64, width=128), entry(1000, 64, gathered=True)
    assert nearest([gathered, other_j, far], wanted) is far
    assert nearest([gathered, other_j], wanted) is other_j


@pytest.mark.parametrize(
    ("nnz", "max_width", "expected"),
    [
        (1_000, 32, ALONE),
        (1_000, 256, SHARED),
        (100_000, 256, SHARED),
        (10_000_000, 256, ALONE),
        (10_000_000, 8192, SHARED),
    ],
)
def test_groups_share_wide_rows_where_one_would_end_after_all_others(
    monkeypatch: pytest.MonkeyPatch, nnz: int, max_width: int, expected: CellSchedule
) -> None:
    table = ScheduleTable(device="gpu", entries=(entry(nnz, max_width), entry(nnz * 4, max_width, SHARED)))
    monkeypatch.setattr("spmark.impls.liteform.schedule.table_for", lambda _: table)
    assert schedule_for("gpu", 64, DType.FLOAT32, nnz=nnz, max_width=max_width) == expected
