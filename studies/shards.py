"""Files of measured rows that grow: each row is on disk before the next is measured, so that a command can go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from spmark.impls.core.errors import DatasetError, RecordError, SpmarkError
from spmark.impls.core.recordfile import RecordFile
from spmark.studies.rows import Row

_log = logging.getLogger(__name__)
Key = TypeVar("Key")
Thing = TypeVar("Thing")


def append_rows(
    path: Path,
    things: Iterable[tuple[Key, Thing | str]],
    make: Callable[[Key, Thing], Row],
    ends: float,
    skip: Callable[[Key, str], None] | None = None,
) -> int:
    """Measure one thing after the other as long as there is time.

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
    skip : callable, optional
        Receives the key of everything that cannot have a row, and the reason, so that one broken matrix does not end a
        shard. Without ``skip`` an error ends the shard.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    DatasetError
        A thing is missing, and ``skip`` is not given.
    RecordError
        The file cannot be written.
    """
    made = 0
    with RecordFile(path) as file:
        for key, thing in things:
            if time.monotonic() >= ends:
                break
            try:
                if isinstance(thing, str):
                    raise DatasetError(thing)
                file.append(make(key, thing))
                made += 1
            except SpmarkError as error:
                if skip is None or isinstance(error, RecordError):
                    raise
                _log.warning("%s cannot be measured: %s", key, error)
                skip(key, str(error))
    return made
