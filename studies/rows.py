"""Files of measured rows: each row is on disk before the next is measured, so that a command can go on.

Also checks of such files before a model is trained on them.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from spmark.impls.core.errors import DatasetError, RecordError, SpmarkError
from spmark.impls.core.untrusted import Frozen
from spmark.records.rowfile import RecordFile

_log = logging.getLogger(__name__)
Key = TypeVar("Key")
Thing = TypeVar("Thing")


class Row(Frozen):
    """A line of a study's file."""

    schema_version: Literal[1] = 1


def append_rows(
    path: Path, things: Iterable[tuple[Key, Thing | str]], make: Callable[[Key, Thing], Row], ends: float
) -> tuple[int, int]:
    """Measure one thing after the other as long as there is time; what cannot be measured is told and passed over.

    Parameters
    ----------
    path : Path
        File of rows, appended to.
    things : iterable of (key, thing)
        A text in place of a thing says why the thing is missing.
    make : callable
        Measures a thing.
    ends : float
        Time of the monotonic clock, in seconds, after which no measurement begins.

    Returns
    -------
    made, failed : int
        Rows written, and things that cannot be measured.

    Raises
    ------
    RecordError
        The file cannot be written.
    """
    made = failed = 0
    with RecordFile(path) as file:
        for key, thing in things:
            if time.monotonic() >= ends:
                break
            try:
                if isinstance(thing, str):
                    raise DatasetError(thing)
                file.append(make(key, thing))
                made += 1
            except RecordError:
                raise
            except SpmarkError as error:
                _log.warning("%s cannot be measured: %s", key, error)
                failed += 1
    return made, failed


def one_device(devices: Iterable[str], expected: str = "expected labels") -> str:
    """Give the device that all rows name.

    Parameters
    ----------
    devices : iterable of str
        One for each row.
    expected : str
        How the error begins.

    Raises
    ------
    DatasetError
        There are no rows, or rows of several devices.
    """
    names = sorted(set(devices))
    if len(names) != 1:
        raise DatasetError(f"{expected} of one device, found {', '.join(names) or 'none'}")
    return names[0]


def digest_of(paths: Sequence[Path]) -> str:
    """Give the SHA-256 over the contents of the files, one after the other."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def reason_of(error: BaseException) -> str:
    """Give the text of an error, or its type where the text is empty."""
    return str(error) or type(error).__name__
