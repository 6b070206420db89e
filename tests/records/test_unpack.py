"""Damaged archives of records: what stands before the damage is read, and the rest is told."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest

from spmark.impls.core.errors import RecordError
from spmark.records import unpack
from spmark.records.unpack import beginning, unpacked, unpacked_lines

LINES = [random.Random(number).randbytes(400).hex().encode() + b"\n" for number in range(200)]
PACKED = {".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lambda text, level=6: lzma.compress(text, preset=level)}
KINDS = pytest.mark.parametrize("kind", sorted(PACKED))


def read(packed: bytes, kind: str) -> list[bytes]:
    return list(unpacked_lines(io.BytesIO(packed), Path(f"rows.jsonl{kind}")))


@pytest.mark.parametrize(
    ("kind", "level"), [(".bz2", 1), (".bz2", 9), (".gz", 0), (".gz", 1), (".gz", 9), (".xz", 0), (".xz", 9)]
)
def test_a_whole_archive_is_read(kind, level, caplog):
    pack = PACKED[kind]
    assert read(pack(b"".join(LINES), level), kind) == LINES
    assert read(pack(b"a\nb", level), kind) == [b"a\n", b"b"]
    assert read(pack(b"\n\na\n", level), kind) == [b"\n", b"\n", b"a\n"]
    assert not caplog.records


@KINDS
def test_a_line_goes_on_in_the_next_archive(kind):
    text = b"".join(LINES)
    packed = b"".join(PACKED[kind](text[at : at + 333]) for at in range(0, len(text), 333))
    assert read(packed, kind) == LINES


def test_every_line_before_the_damage_of_a_gzip_archive_is_read(caplog):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    before = packer.compress(b"".join(LINES[:100])) + packer.flush(zlib.Z_FULL_FLUSH)
    assert read(before + b"\xff" * 8 + before, ".gz") == LINES[:100]  # no block begins so
    assert "rows.jsonl.gz: the archive is damaged after 100 lines" in caplog.text
    assert "take it from a copy" in caplog.text


@pytest.mark.parametrize("kind", [".gz", ".xz"])
@pytest.mark.parametrize("cut", [1, 8, 9, 1000, 30_000])
def test_of_an_archive_that_was_cut_off_the_beginning_is_read(kind, cut, caplog):
    packed = PACKED[kind](b"".join(LINES))[:-cut]
    found = read(packed, kind)
    assert found[:-1] == LINES[: len(found) - 1]
    assert len(found) >= 200 * (len(packed) - 600) // (len(packed) + cut)
    assert "it is cut off" in caplog.text


def test_an_xz_archive_that_asks_for_much_memory_is_refused():
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}]
    with pytest.raises(RecordError, match="Memory usage limit"):
        read(lzma.compress(b"".join(LINES), filters=filters), ".xz")


@pytest.mark.parametrize("at", range(12_000, 75_000, 9973))
def test_lines_before_the_damage_of_an_xz_archive_are_read(at, caplog):
    packed = bytearray(lzma.compress(b"".join(LINES)))
    packed[at] ^= 0xFF
    found = read(bytes(packed), ".xz")
    pairs = zip(found, LINES, strict=False)
    right = next((place for place, pair in enumerate(pairs) if pair[0] != pair[1]), len(found))
    assert right >= (200 * at - 8_000_000) // len(packed)
    assert "the archive is damaged after" in caplog.text


@pytest.mark.parametrize("cut", [1, 8, 9, 1000, 30_000])
def test_of_a_bzip2_archive_that_was_cut_off_the_whole_blocks_are_read(cut, caplog):
    found = read(bz2.compress(b"".join(LINES), 1)[:-cut], ".bz2")
    assert found[:-1] == LINES[: len(found) - 1]
    assert sum(map(len, found)) >= 99_900
    assert "it is cut off" in caplog.text


def test_lines_of_a_gzip_archive_whose_checksum_is_wrong_are_read_and_told(caplog):
    packed = bytearray(gzip.compress(b"".join(LINES)))
    packed[-6] ^= 1
    assert read(bytes(packed), ".gz") == LINES
    assert "damaged after 200 lines" in caplog.text


@KINDS
@pytest.mark.parametrize("content", [b"no archive", b"\x1f\x8b", b"BZ", b"\xfd7zXZ", b'{"a": 1}\n' * 9])
def test_what_is_no_archive_is_refused(kind, content):
    with pytest.raises(RecordError, match=rf"rows\.jsonl\{kind}: .* expected lines in an archive of kind \{kind}"):
        read(content, kind)


@KINDS
def test_the_whole_text_of_an_archive(kind, tmp_path):
    path, text = tmp_path / f"rows.jsonl{kind}", b"".join(LINES)
    path.write_bytes(PACKED[kind](text))
    assert unpacked(path) == text
    path.write_bytes(PACKED[kind](text)[:-1])
    with pytest.raises(RecordError, match=rf"rows\.jsonl\{kind}: expected a whole archive, found .* cut off"):
        unpacked(path)


@pytest.mark.full
@KINDS
def test_a_line_without_end_does_not_fill_the_memory(kind, monkeypatch, caplog):
    monkeypatch.setattr(unpack, "LONGEST_LINE", 1 << 22)
    packed = PACKED[kind](b"whole\n" + b"0" * (1 << 28), 1)
    tracemalloc.start()
    assert read(packed, kind) == [b"whole\n"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 26
    assert "a line of more than" in caplog.text


@pytest.mark.parametrize("kind", ["", *sorted(PACKED)])
def test_the_beginning_of_a_file(kind, tmp_path):
    path, text = tmp_path / f"rows.jsonl{kind}", b"".join(LINES)
    pack = PACKED.get(kind, bytes)
    path.write_bytes(pack(text))
    assert beginning(path, 1000) == text[:1000]
    assert beginning(path, 1 << 20) == text
    path.write_bytes(pack(text)[:-60])
    found = beginning(path, 1 << 20)
    assert text.startswith(found)
    assert found != text
