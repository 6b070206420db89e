"""Damaged archives of records: what stands before the damage is read, and the rest is told."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest

from spmark.impls.core import gunzip
from spmark.impls.core.errors import RecordError
from spmark.impls.core.gunzip import gunzipped_lines

PATH = Path("rows.jsonl.gz")
LINES = [random.Random(number).randbytes(400).hex().encode() + b"\n" for number in range(200)]


def read(packed: bytes) -> list[bytes]:
    return list(gunzipped_lines(io.BytesIO(packed), PATH))


@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_whole_archive_is_read(level, caplog):
    assert read(gzip.compress(b"".join(LINES), level)) == LINES
    assert read(gzip.compress(b"a\nb", level)) == [b"a\n", b"b"]
    assert not caplog.records


def test_archives_one_after_the_other_are_one(caplog):
    packed = b"".join(gzip.compress(line) for line in LINES) + b"\0" * 7
    assert read(packed) == LINES
    assert not caplog.records


def test_an_empty_archive_has_no_lines(caplog):
    assert read(gzip.compress(b"")) == []
    assert read(b"") == []
    assert not caplog.records


def test_every_line_before_the_damage_is_read(caplog):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    before = packer.compress(b"".join(LINES[:100])) + packer.flush(zlib.Z_FULL_FLUSH)
    assert read(before + b"\xff" * 8 + before) == LINES[:100]  # no block begins so
    assert "rows.jsonl.gz: the archive is damaged after 100 lines" in caplog.text
    assert "take it from a copy" in caplog.text


@pytest.mark.parametrize("cut", [1, 8, 9, 1000, 30_000])
def test_of_what_was_cut_off_the_beginning_is_read(cut, caplog):
    packed = gzip.compress(b"".join(LINES))[:-cut]
    found = read(packed)
    assert found[:-1] == LINES[: len(found) - 1]
    assert len(found) >= 200 * (len(packed) - 600) // (len(packed) + cut)
    assert "it is cut off" in caplog.text


def test_lines_whose_checksum_is_wrong_are_read_and_told(caplog):
    packed = bytearray(gzip.compress(b"".join(LINES)))
    packed[-6] ^= 1
    assert read(bytes(packed)) == LINES
    assert "damaged after 200 lines" in caplog.text


@pytest.mark.parametrize("content", [b"no archive", b"\x1f\x8b", b'{"a": 1}\n' * 9])
def test_what_is_no_archive_is_refused(content):
    with pytest.raises(RecordError, match=r"rows\.jsonl\.gz: cannot be read: expected a gzip archive"):
        read(content)


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch, caplog):
    monkeypatch.setattr(gunzip, "LONGEST_LINE", 1 << 22)
    packed = gzip.compress(b"whole\n" + b"0" * (1 << 28), 1)
    tracemalloc.start()
    assert read(packed) == [b"whole\n"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 26
    assert "a line of more than" in caplog.text
