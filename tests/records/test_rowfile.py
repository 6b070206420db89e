from __future__ import annotations

import bz2
import errno
import fcntl
import gzip
import logging
import lzma
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from spmark.impls.core.errors import RecordError
from spmark.records.rowfile import RecordFile, lock_folder, read_rows, row_files

PRELUDE = """
import sys
from pathlib import Path
from pydantic import BaseModel
from spmark.impls.core.errors import RecordError
from spmark.records.rowfile import RecordFile, lock_folder
class Row(BaseModel):
    number: int
    text: str = ""
path = Path(sys.argv[1])
"""
APPEND = """
number = int(sys.argv[2])
with RecordFile(path) as file:
    while True:
        file.append(Row(number=number, text="x" * (number * 997 % 60000)))
        print(number, flush=True)
        number += 1
"""
FILL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
file, number = RecordFile(path), 0
try:
    while True:
        file.append(Row(number=number, text="x" * 7000))
        number += 1
except RecordError as error:
    print(number, error)
"""
HOLD = """
import time
lock = lock_folder(path)
print("held", flush=True)
time.sleep(60)
"""


class Row(BaseModel):
    number: int
    text: str = ""


def numbers(path: Path) -> list[int]:
    return [row.number for row in read_rows(path, Row)]


def start(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    with RecordFile(path) as file:
        file.append(Row(number=1, text="å\n\u2028"))
        file.append(Row(number=2))
        assert numbers(path) == [1, 2]  # on disk before the file is closed
    with RecordFile(path) as file:
        file.append(Row(number=3))
    rows = list(read_rows(path, Row))
    assert [row.number for row in rows] == [1, 2, 3]
    assert rows[0].text == "å\n\u2028"
    assert path.read_bytes().count(b"\n") == 3


def test_files_of_rows_are_found_by_how_their_names_begin(tmp_path: Path) -> None:
    for name in ("runs.jsonl", "runs.jsonl.bz2", "runs.jsonl.gz", "runs.json", "runs.jsonl.part", "other.jsonl"):
        (tmp_path / name).touch()
    assert [path.name for path in row_files(tmp_path, "runs")] == ["runs.jsonl", "runs.jsonl.bz2", "runs.jsonl.gz"]
    assert row_files(tmp_path / "nowhere", "runs") == []


def test_read_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"number": 4}\n{"number": 5}\n'))
    assert numbers(path) == [4, 5]
    path.write_bytes(path.read_bytes()[:-13])
    assert numbers(path) == [4]  # the line that was cut off is passed over
    for kind, pack in ((".bz2", bz2.compress), (".xz", lzma.compress)):
        other = tmp_path / f"rows.jsonl{kind}"
        other.write_bytes(pack(b'{"number": 4}\n{"number": 5}\n'))
        assert numbers(other) == [4, 5]
    path.write_bytes(b"no archive")
    with pytest.raises(RecordError, match=r"rows\.jsonl\.gz: cannot be read"):
        numbers(path)


def test_a_line_that_is_nested_too_deeply_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.jsonl"
    deep = b'{"number": 2, "text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    path.write_bytes(b'{"number": 1}\n' + deep + b'{"number": 3}\n')
    assert numbers(path) == [1, 3]
    assert "rows.jsonl:2: passed over" in caplog.text
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("cut", [1, 5, 13])
def test_torn_line_is_passed_over_and_ended(tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.jsonl"
    with RecordFile(path) as file:
        for number in range(3):
            file.append(Row(number=number))
    path.write_bytes(path.read_bytes()[:-cut])
    with RecordFile(path) as file:
        file.append(Row(number=7))
    with caplog.at_level(logging.WARNING):
        found = numbers(path)
    if cut == 1:  # only the line's end was lost
        assert found == [0, 1, 2, 7]
        assert not caplog.records
    else:
        assert found == [0, 1, 7]
        assert "rows.jsonl:3: passed over a line that was cut off" in caplog.text


def test_line_of_another_kind_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"number": 1}\n\n{"number": "many"}\n')
    with pytest.raises(RecordError, match=r"rows\.jsonl:3: expected a Row\n(.|\n)*number"):
        numbers(path)


def test_missing_and_unwritable(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.jsonl: cannot be read"):
        numbers(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be opened for appending"):
        RecordFile(tmp_path / "file" / "rows.jsonl")
    with pytest.raises(RecordError, match="cannot be written"):
        lock_folder(tmp_path / "file")


@pytest.mark.timeout(120)
def test_kill_while_appending_loses_nothing(tmp_path: Path) -> None:
    """Every row that a killed process said was written is there, once, in order, whatever else was cut off."""
    path = tmp_path / "rows.jsonl"
    number, told = 0, []
    for attempt in range(6):
        process = start(APPEND, path, number)
        assert process.stdout is not None
        process.stdout.readline()
        told.append(number)
        time.sleep(0.013 * attempt)
        process.kill()
        told += [int(line) for line in process.stdout.read().splitlines() if line]
        assert process.wait() == -signal.SIGKILL
        number = told[-1] + 1000
    found = numbers(path)
    assert len(told) > 20
    assert set(told) <= set(found)
    assert found == sorted(set(found))
    assert len(found) <= len(told) + 6


def test_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    process = start(FILL, path)
    output, _ = process.communicate(timeout=60)
    count, _, message = output.partition(" ")
    assert process.returncode == 0
    assert int(count) == 100_000 // 7030
    assert "could not be written" in message
    assert f"the {path.stat().st_size} bytes before them are intact" in message
    assert "make room and run again" in message
    assert path.read_bytes().endswith(b"\n")
    assert numbers(path) == list(range(int(count)))


def test_a_file_system_without_locks_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(RecordError, match=rf"^{tmp_path}: cannot be locked: No locks available; name .* with --out$"):
        lock_folder(tmp_path)


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    process = start(HOLD, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(RecordError, match=rf"found another \(process {process.pid} since .* UTC\).*--out"):
        lock_folder(tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    lock_folder(tmp_path).close()
