"""Searching folders for files: what cannot be read is an error, never an empty folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from spmark.impls.core.errors import RecordError


@contextmanager
def searching(path: Path) -> Iterator[None]:
    """Turn what the system says of a path that cannot be searched into an error of ours.

    Raises
    ------
    RecordError
        Names the path, or what lies below it, with the system's words.
    """
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"{error.filename or path}: expected a file or a folder that can be read, found: "
            f"{error.strerror or error}; give this account the right to read it, or name another path"
        ) from error


def files_below(folder: Path, without: Collection[str] = ()) -> Iterator[Path]:
    """List what is no folder below a folder, at any depth, but for what lies in folders with the names ``without``.

    Raises
    ------
    OSError
        A folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name not in without]
        yield from (Path(place, name) for name in names)
