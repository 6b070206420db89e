"""Labels with a timer that computes instead of measuring: the climb, one build for all J, shards that go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from problems import random_csr

from spmark.impls.core.errors import BuildError, DatasetError, RecordError, UnsupportedError
from spmark.impls.core.problem import DType
from spmark.impls.liteform.compose import StoredAs
from spmark.studies.liteform.labels import (
    MAX_SAMPLES,
    MatrixLabels,
    Point,
    climb,
    measure,
    read_labels,
)
from spmark.studies.liteform.tables import table_of
from spmark.studies.rows import append_rows

pytestmark = pytest.mark.full

MATRIX = random_csr(60, 300, np.random.default_rng(0).integers(1, 200, 60).tolist())
ABOUT = {
    "matrix": "made/up",
    "matrix_kind": "synthetic",
    "device": "fake-gpu",
    "implementation_version": "0" * 16,
}


def read(path: Path) -> pd.DataFrame:
    return table_of(read_labels([path]))


def there(path: Path) -> list[Path]:
    return [path] if path.is_file() else []


class FakeTimer:
    """Fastest at two partitions and buckets of 16 at J = 32, at four and 64 at J = 128."""

    def __init__(self, fail_from: int = 1024) -> None:
        self.built: list[tuple[int, int]] = []
        self._fail_from = fail_from

    def fixed(self, form: StoredAs, width: int) -> list[float]:
        if form is StoredAs.BSR:
            raise UnsupportedError("no blocks here")
        return [50.0 * width / 32] * 12

    def cell(self, partitions: int, max_width: int) -> Mapping[int, list[float]]:
        self.built.append((partitions, max_width))
        if max_width >= self._fail_from:
            raise BuildError("too wide")
        best = {32: (1, 4), 128: (2, 6)}
        return {
            width: [10.0 * width / 32 * (1 + abs(np.log2(partitions) - p) + abs(np.log2(max_width) - w))] * 12
            for width, (p, w) in best.items()
        }


def made(timer: FakeTimer, **how) -> MatrixLabels:
    return measure(MATRIX, timer, ABOUT, dtype=DType.FLOAT32, start_width=1, widths=(32, 128), **how)


def test_the_climb_finds_the_bottom_and_asks_once() -> None:
    asked: list[Point] = []

    def time_us(point: Point) -> float:
        asked.append(point)
        return abs(point.partitions - 3) + abs(point.width - 5) + 1.0

    seen = climb(Point(0, 0), Point(7, 10), time_us)
    assert min(seen, key=lambda point: seen[point]) == (3, 5)
    assert len(asked) == len(set(asked)) == len(seen) < 8 * 11


def test_a_config_is_built_once_for_all_widths() -> None:
    timer = FakeTimer()
    row = made(timer)
    assert len(timer.built) == len(set(timer.built)) == len(row.tried)
    assert row.complete
    assert all(len(samples) <= MAX_SAMPLES for tried in row.tried for samples in tried.samples_us.values())
    assert {len(tried.samples_us) for tried in row.tried if not tried.reason} == {2}
    assert row.refused == {"bsr": "no blocks here"}


def test_what_fails_is_kept_with_its_reason_and_never_chosen(tmp_path: Path) -> None:
    row = made(FakeTimer(fail_from=64))
    failed = [tried for tried in row.tried if tried.reason]
    assert {tried.max_width for tried in failed} == {64}
    path = tmp_path / "labels.jsonl"
    append_rows(path, [("made/up", MATRIX)], lambda *_: row, inf)
    labels, gpu = read(path), read_labels([path])[0].device
    assert gpu == "fake-gpu"
    assert labels.max_width.tolist() == [16, 32]


def test_labels_become_a_table(tmp_path: Path) -> None:
    path = tmp_path / "shard-01-of-01.jsonl"
    row = made(FakeTimer())
    append_rows(path, [("made/up", MATRIX)], lambda *_: row, inf)
    labels = read(path)
    assert labels.width.tolist() == [32, 128]
    assert labels.partitions.tolist() == [2, 4]
    assert labels.max_width.tolist() == [16, 64]
    assert labels.cell_us.tolist() == [10, 40]
    assert labels.speedup.tolist() == [5, 5]
    assert labels.nnz.tolist() == [MATRIX.nnz] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": {"num_rows": 3.0}}, "features.num_cols"),
        ({"fixed_us": {"csr": {32: [0.0]}}}, "greater than 0"),
        ({"tried": [{"partitions": 1, "max_width": 8, "samples_us": {32: [-1.0]}}]}, "greater than 0"),
        ({"schema_version": 2}, "schema_version"),
        ({"surprise": 1}, "surprise"),
    ],
    ids=str,
)
def test_a_line_that_means_nothing_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps(made(FakeTimer()).model_dump(mode="json") | change) + "\n")
    with pytest.raises(RecordError, match=message) as caught:
        read(path)
    assert f"{path}:1" in str(caught.value)


def test_a_file_without_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("")
    with pytest.raises(DatasetError, match="one device, found none"):
        read(path)
