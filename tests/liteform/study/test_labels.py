"""Labels with a timer that computes instead of measuring: the climb, one build for all J, shards that go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.errors import BuildError, DatasetError, RecordError, UnsupportedError
from spmark.impls.core.problem import Csr, DType
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.study.climb import Point, climb, neighbours, published_start
from spmark.impls.liteform.study.labelled import LabelTable
from spmark.impls.liteform.study.labels import (
    MAX_SAMPLES,
    About,
    MatrixLabels,
    TriedConfig,
    measure,
)
from spmark.impls.liteform.study.measured import partition_regret, read_labels, table_of
from spmark.impls.liteform.study.shards import Skipped, by_dtype, measured_before, skipped_before
from spmark.impls.study.shards import append_rows

pytestmark = pytest.mark.full

MATRIX = random_csr(60, 300, np.random.default_rng(0).integers(1, 200, 60).tolist())
TRIED = TriedConfig(partitions=1, max_width=8, samples_us={32: [3.0], 128: [4.0]})
ABOUT = About("made/up", "synthetic", "fake-gpu", "0" * 16)


def read(path: Path, both: bool = True) -> LabelTable:
    return table_of(read_labels([path]), both)


def there(path: Path) -> list[Path]:
    return [path] if path.is_file() else []


class FakeTimer:
    """Fastest at two partitions and buckets of 16 at J = 32, at four and 64 at J = 128."""

    def __init__(self, fail_from: int = 1024) -> None:
        self.built: list[tuple[int, int]] = []
        self.prepared: list[tuple[int, int]] = []
        self._fail_from = fail_from

    def fixed(self, form: StoredAs, width: int) -> list[float]:
        if form is StoredAs.BSR:
            raise UnsupportedError("no blocks here")
        return [50.0 * width / 32] * 12

    def prepare(self, configs: Sequence[tuple[int, int]]) -> None:
        self.prepared += configs

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
    return measure(MATRIX, timer, ABOUT, widths=(32, 128), **how)


def test_the_climb_finds_the_bottom_and_asks_once() -> None:
    asked: list[Point] = []

    def time_us(point: Point) -> float:
        asked.append(point)
        return abs(point.partitions - 3) + abs(point.width - 5) + 1.0

    seen = climb(Point(0, 0), Point(7, 10), time_us)
    assert min(seen, key=lambda point: seen[point]) == (3, 5)
    assert len(asked) == len(set(asked)) == len(seen) < 8 * 11


def test_a_slower_neighbour_is_not_followed() -> None:
    # Behind a wall of slower configs everything would be faster.
    seen = climb(Point(0, 0), Point(0, 10), lambda point: {0: 5.0, 1: 9.0}.get(point.width, 1.0))
    assert set(seen) == {(0, 0), (0, 1)}
    assert set(climb(Point(0, 0), Point(3, 3), lambda _: inf)) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_neighbours_stay_inside() -> None:
    assert len(neighbours(Point(2, 2), Point(7, 10))) == 8
    assert sorted(neighbours(Point(0, 10), Point(7, 10))) == [(0, 9), (1, 9), (1, 10)]


def test_where_the_climb_begins() -> None:
    def start(mean: float) -> Point:
        return published_start(Features(10, 10, 10, mean, 0, 9, 1.0))

    assert start(1.0) == (0, 0)
    assert start(33.0) == (0, 1)
    assert start(492.0) == (0, 4)


def test_a_config_is_built_once_for_all_widths() -> None:
    timer = FakeTimer()
    row = made(timer)
    assert len(timer.built) == len(set(timer.built)) == len(row.tried)
    assert row.complete
    assert len(timer.prepared) == len(set(timer.prepared))
    assert set(timer.built[1:]) == set(timer.prepared), "all but the start are announced before they are built"
    assert all(len(samples) <= MAX_SAMPLES for tried in row.tried for samples in tried.samples_us.values())
    assert {len(tried.samples_us) for tried in row.tried if not tried.reason} == {2}
    assert row.refused == {"bsr": "no blocks here"}


def test_what_fails_is_kept_with_its_reason_and_never_chosen(tmp_path: Path) -> None:
    row = made(FakeTimer(fail_from=64), exhaustive=True)
    failed = [tried for tried in row.tried if tried.reason]
    assert {tried.max_width for tried in failed} == {64, 128, 256}
    path = tmp_path / "labels.jsonl"
    append_rows(path, by_dtype([("made/up", MATRIX)], [DType.FLOAT32]), lambda *_: row, inf)
    labels, gpu = read(path), read_labels([path])[0].device
    assert gpu == "fake-gpu"
    assert labels.max_width.tolist() == [16, 32]


def test_exhaustive_tries_everything() -> None:
    row = made(FakeTimer(), exhaustive=True)
    # The longest row has less than 256 non-zeros: wider buckets would be the same format again.
    assert len(row.tried) == 8 * 9
    assert row.exhaustive


def test_the_climb_begins_where_it_is_told() -> None:
    timer = FakeTimer()
    row = made(timer, start_width=64)
    assert timer.built[0] == (1, 64)
    assert {(t.partitions, t.max_width) for t in row.tried} >= {(2, 16), (4, 64)}
    assert made(FakeTimer(), start_width=1024).tried[0].max_width == 256


def test_the_time_limit_ends_the_climb() -> None:
    row = made(FakeTimer(), limit_s=0.0)
    assert not row.complete
    assert len(row.tried) == 1


def test_labels_become_a_table(tmp_path: Path) -> None:
    path = tmp_path / "shard-01-of-01.jsonl"
    row = made(FakeTimer())
    append_rows(path, by_dtype([("made/up", MATRIX)], [DType.FLOAT32]), lambda *_: row, inf)
    labels = read(path)
    assert labels.width.tolist() == [32, 128]
    assert labels.partitions.tolist() == [2, 4]
    assert labels.max_width.tolist() == [16, 64]
    assert labels.cell_us.tolist() == [10, 40]
    assert labels.speedup.tolist() == [5, 5]
    assert labels.nnz.tolist() == [MATRIX.nnz] * 2


def test_blocks_count_as_a_fixed_format_where_there_are_any(tmp_path: Path) -> None:
    class Blocks(FakeTimer):
        def fixed(self, form: StoredAs, width: int) -> list[float]:
            return [8.0] if form is StoredAs.BSR else [50.0]

    path = tmp_path / "labels.jsonl"
    row = made(Blocks())
    append_rows(path, by_dtype([("made/up", MATRIX)], [DType.FLOAT32]), lambda *_: row, inf)
    assert read(path).speedup.tolist() == [0.8, 0.2]
    assert read(path, both=False).speedup.tolist() == [5, 1.25]


def test_regret_of_the_partitions_by_hand() -> None:
    row = made(FakeTimer(), exhaustive=True)
    assert partition_regret([row], lambda _, width: {32: 2, 128: 4}[width]) == pytest.approx(0)
    # One partition instead of two takes twice as long at J = 32, one instead of four three times at J = 128.
    assert partition_regret([row], lambda *_: 1) == pytest.approx(np.sqrt(2 * 3) - 1)
    assert np.isnan(partition_regret([], lambda *_: 1))


def test_a_shard_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    row = made(FakeTimer())
    todo = [(f"made/{n}", MATRIX if n != 3 else "no such file") for n in range(4)]
    calls: list[tuple[str, DType]] = []

    def make(key: tuple[str, DType], matrix: Csr) -> MatrixLabels:
        name, dtype = key
        calls.append(key)
        assert matrix is MATRIX
        if name == "made/1":
            raise DatasetError("broken")
        return row.model_copy(update={"matrix": name, "dtype": dtype})

    def go_on(matrices: list, ends: float) -> int:
        have = measured_before(there(path), "fake-gpu", "0" * 16)
        return append_rows(path, by_dtype(matrices, list(DType), have), make, ends, lambda *_: None)

    assert go_on(todo, time.monotonic() - 1) == 0
    assert calls == []
    assert go_on(todo[:1], inf) == 2
    assert go_on(todo, inf) == 2
    assert calls[2:] == [(f"made/{n}", dtype) for n in (1, 2) for dtype in DType]
    assert go_on(todo, inf) == 0


def test_what_cannot_be_labelled_is_told_with_the_reason(tmp_path: Path) -> None:
    row = made(FakeTimer())
    told: list[tuple[tuple[str, DType], str]] = []

    def make(key: tuple[str, DType], matrix: Csr) -> MatrixLabels:
        name, dtype = key
        if name == "made/broken":
            raise DatasetError("broken")
        return row.model_copy(update={"matrix": name, "dtype": dtype})

    todo = [("made/up", MATRIX), ("made/none", "no such file"), ("made/broken", MATRIX)]
    path = tmp_path / "labels.jsonl"
    for ends, made_rows in ((inf, 1), (-inf, 0)):
        things = by_dtype(todo, [DType.FLOAT32])
        assert append_rows(path, things, make, ends, lambda *one: told.append(one)) == made_rows
    assert told == [(("made/none", DType.FLOAT32), "no such file"), (("made/broken", DType.FLOAT32), "broken")]
    assert len(told) == 2, "what there was no time for may still be labelled"


def test_only_the_same_version_on_the_same_device_skips_again(tmp_path: Path) -> None:
    path = tmp_path / "skipped.ndjson"
    assert skipped_before(path, "fake-gpu", "1") == set()
    rows = [
        Skipped(matrix="a", device=device, dtype=DType.FLOAT16, width=32, reason="why", implementation_version=version)
        for device, version in (("fake-gpu", "1"), ("other-gpu", "2"))
    ]
    path.write_text("".join(row.model_dump_json() + "\n" for row in rows))
    assert skipped_before(path, "fake-gpu", "1") == {("a", DType.FLOAT16, 32)}
    assert skipped_before(path, "fake-gpu", "2") == set()


@pytest.mark.parametrize("first", [0, 1])
def test_a_matrix_in_two_shards_counts_once(tmp_path: Path, first: int) -> None:
    every, climbed = made(FakeTimer(), exhaustive=True), made(FakeTimer())
    paths = [tmp_path / "shard-01-of-01.jsonl", tmp_path / "shard-01-of-02.jsonl"]
    for path, row in zip(paths, (every, climbed) if first else (climbed, every), strict=True):
        other = row.model_copy(update={"dtype": DType.FLOAT16})
        for one in (row, other):
            append_rows(path, by_dtype([("made/up", MATRIX)], [one.dtype]), lambda *_, one=one: one, inf)
    rows = read_labels(paths)
    assert [(row.dtype, row.exhaustive) for row in rows] == [(DType.FLOAT32, True), (DType.FLOAT16, True)]
    assert measured_before(paths, "fake-gpu", "0" * 16) == {("made/up", "float32"), ("made/up", "float16")}
    assert table_of(rows).size == 4


def test_a_shard_of_another_device_is_not_gone_on_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "labels.jsonl"
    assert measured_before([], "fake-gpu", "") == set()
    append_rows(path, by_dtype([("made/up", MATRIX)], [DType.FLOAT32]), lambda *_: made(FakeTimer()), inf)
    with pytest.raises(RecordError, match="expected labels of other-gpu, found those of fake-gpu; name"):
        measured_before([path], "other-gpu", "0" * 16)
    assert measured_before([path], "fake-gpu", "0" * 16) == {("made/up", "float32")}
    assert not caplog.records
    assert measured_before([path], "fake-gpu", "1" * 16) == {("made/up", "float32")}
    assert "1 of 1 labels were measured by another version" in caplog.text


def test_a_shard_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    names = ["made/0", "made/1"]
    by_name = {name: made(FakeTimer()).model_copy(update={"matrix": name}) for name in names}

    def go_on() -> int:
        todo = [(name, MATRIX) for name in names]
        have = measured_before(there(path), "fake-gpu", "0" * 16)
        return append_rows(path, by_dtype(todo, [DType.FLOAT32], have), lambda key, _: by_name[key[0]], inf)

    assert go_on() == 2
    path.write_bytes(path.read_bytes()[:-40])
    assert go_on() == 1
    assert sorted(read(path).matrix) == [f"{name} float32" for name in names for _ in (32, 128)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": {"num_rows": 3.0}}, "expected the features"),
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


def test_a_width_without_times_of_csr_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    for fixed_us in ({"csr": {128: [9.0]}}, {"csr": {32: [], 128: [9.0]}, "bsr": {32: [1.0]}}):
        row = made(FakeTimer()).model_copy(update={"fixed_us": fixed_us, "tried": (TRIED,)})
        path.unlink(missing_ok=True)
        append_rows(path, by_dtype([("made/up", MATRIX)], [DType.FLOAT32]), lambda *_, row=row: row, inf)
        assert read(path).width.tolist() == [128]


def test_of_configs_that_noise_cannot_tell_apart_the_fewest_partitions_are_learned(tmp_path: Path) -> None:
    class Level(FakeTimer):
        def cell(self, partitions: int, max_width: int) -> Mapping[int, list[float]]:
            time_us = {(8, 32): 10.0, (2, 16): 10.2, (1, 16): 10.9}.get((partitions, max_width), 20.0)
            return {width: [share * time_us for share in (0.96, 0.98, 1.0, 1.02, 1.04)] for width in (32, 128)}

    path = tmp_path / "labels.jsonl"
    row = made(Level(), exhaustive=True)
    append_rows(path, by_dtype([("made/up", MATRIX)], [DType.FLOAT32]), lambda *_: row, inf)
    labels = read(path)
    assert (labels.partitions[0], labels.max_width[0], labels.cell_us[0]) == (2, 16, 10)


def test_a_file_without_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("")
    with pytest.raises(DatasetError, match="one device, found none"):
        read(path)
