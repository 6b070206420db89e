"""Append-only JSON-lines files that survive kill -9, a full disk and torn lines.

A line is written whole, flushed and fsynced before `RecordFile.append` returns. A line that was cut off by a crash
stays in the file and is passed over by readers with a warning; the next append starts on a new line.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from spmark.impls.core.errors import RecordError
from spmark.impls.core.untrusted import NoJsonError, parse_model, reading
from spmark.records.unpack import ARCHIVES, unpacked_lines

Row = TypeVar("Row", bound=BaseModel)
RECORDS, ENVIRONMENTS, CANDIDATES, RUNS = "records.jsonl", "environments.jsonl", "candidates.jsonl", "runs.jsonl"
"""Files of a folder of records."""
SUFFIXES = (".jsonl", *(f".jsonl{archive}" for archive in ARCHIVES))
"""How names of files of rows end."""
_log = logging.getLogger(__name__)


class RecordFile(AbstractContextManager["RecordFile"]):
    """One file of rows, open for appending.

    Raises
    ------
    RecordError
        The file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise RecordError(f"{path}: cannot be opened for appending: {error.strerror}") from error
        if self._file.seek(0, os.SEEK_END):
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":  # a line that was cut off
                self._write(b"\n")

    def append(self, row: BaseModel) -> None:
        """Write one row and wait until it is on disk.

        Raises
        ------
        RecordError
            The disk is full or the file cannot be written; earlier rows stay unchanged.
        """
        self.append_all([row])

    def append_all(self, rows: Iterable[BaseModel]) -> None:
        """Write rows at once, all of them or none, and wait until they are on disk.

        Raises
        ------
        RecordError
            As `append`.
        """
        lines = b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
        if lines:
            self._write(lines)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _write(self, line: bytes) -> None:
        before = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(before)
            raise RecordError(
                f"{self.path}: {len(line)} bytes could not be written ({error.strerror}); "
                f"the {before} bytes before them are intact: make room and run again to resume"
            ) from error


def read_rows(path: Path, kind: type[Row], without: bytes | None = None, context: object = None) -> Iterator[Row]:
    """Read a file of rows, or an archive of one (`SUFFIXES`), oldest first.

    A line that is not complete JSON is passed over with a warning, and so is everything after the damage of an archive.
    The file stays as it is. Lines that hold the text ``without`` are passed over unread: to look for a text is cheaper
    than to parse a line. Validators of ``kind`` are handed the ``context``.

    Raises
    ------
    RecordError
        The file cannot be read, or a complete line is not a ``kind``: names the file, the line and the field.
    """
    try:
        with path.open("rb") as file:
            lines = unpacked_lines(file, path) if path.suffix in ARCHIVES else file
            yield from _rows(lines, path, kind, without, context)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error


def row_files(folder: Path, begins: str) -> list[Path]:
    """List the files of rows right in a folder whose names begin so, by name; archives too."""
    return [file for file in sorted(folder.glob(f"{begins}*")) if file.name.endswith(SUFFIXES)]


def _rows(lines: Iterable[bytes], path: Path, kind: type[Row], without: bytes | None, context: object) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip() or (without and without in line):
            continue
        try:
            row = parse_model(kind, line, context)
        except NoJsonError:
            _log.warning("%s:%d: passed over a line that was cut off (%d bytes)", path, number, len(line))
            continue
        except ValidationError as error:
            raise RecordError(f"{path}:{number}: expected a {kind.__name__}\n{error}") from error
        except Exception:
            # The guard is entered after the fault: to enter the guard takes as long as to parse a line.
            with reading(f"{path}:{number}", f"a {kind.__name__}", RecordError):
                raise
        yield row


def lock_folder(folder: Path) -> IO[str]:
    """Take the sole right to write records into a folder, given up when the file that comes back is closed.

    The right ends with the process, however that ends.

    Raises
    ------
    RecordError
        Another process has the right, which the message names; or the file system gives no locks or has no room.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n")
        file.flush()
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise RecordError(
            f"{folder}: expected to be the only run that writes here, found another ({holder}); "
            "wait for it, or name another folder with --out"
        ) from error
    except OSError as error:
        with suppress(OSError):  # closing writes what could not be written once more
            file.close()
        raise RecordError(
            f"{folder}: cannot be locked: {error.strerror}; name a folder on another file system with --out"
        ) from error
    return file
