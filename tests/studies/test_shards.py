"""Files of rows that grow, and what becomes of a thing that cannot be measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from spmark.impls.core.errors import BuildError, RecordError
from spmark.records.rowfile import read_rows
from spmark.studies.rows import Row, append_rows


class Measured(Row):
    number: int


def made(key: str, thing: int) -> Measured:
    if thing < 0:
        raise BuildError(f"{key} is broken")
    return Measured(number=thing)


def numbers(path: Path) -> list[int]:
    return [row.number for row in read_rows(path, Measured)]


def test_what_cannot_be_measured_is_told_and_the_shard_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    things = [("a", 1), ("b", -1), ("c", "there is none"), ("d", 4)]
    assert append_rows(path, things, made, inf) == (2, 2)
    assert append_rows(path, [("e", 5)], made, inf) == (1, 0)
    assert numbers(path) == [1, 4, 5]
    assert caplog.messages == ["b cannot be measured: b is broken", "c cannot be measured: there is none"]


def test_nothing_is_begun_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    on_disk = []

    def things() -> Iterator[tuple[str, int]]:
        for number in range(3):
            yield "a", number
            on_disk.append(numbers(path))

    assert append_rows(path, things(), made, time.monotonic() - 1) == (0, 0)
    assert append_rows(path, things(), made, inf) == (3, 0)
    assert on_disk == [[0], [0, 1], [0, 1, 2]], "each row is on disk before the next thing is asked for"


def test_a_file_that_cannot_be_written_ends_the_shard(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError):
        append_rows(tmp_path / "file" / "rows.jsonl", [("a", 1)], made, inf)
