"""Reading one member out of a downloaded archive, as a stream: nothing is ever unpacked to disk.

Members are checked all the same: no publisher ships an archive with absolute paths, ``..``, links or devices.
"""

from __future__ import annotations

import contextlib
import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from spmark.impls.core.errors import DatasetError

BROKEN = (EOFError, OSError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError)
"""What reading a truncated or corrupt archive raises."""


@contextlib.contextmanager
def open_member(path: Path, wanted: Callable[[PurePosixPath], bool], what: str) -> Iterator[IO[bytes]]:
    """Open the only member of a ``.zip`` or ``.tar.gz`` for which ``wanted`` holds.

    Parameters
    ----------
    path : Path
    wanted : callable
        Takes the member's path in the archive.
    what : str
        How errors call the member.

    Raises
    ------
    DatasetError
        The archive is broken (also while the stream is read), holds an illegal member, or not exactly one that is
        wanted.
    """
    with broken_as_dataset_error(path):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                infos = {info.filename: info for info in file.infolist() if not info.is_dir()}
                links = {name for name, info in infos.items() if stat.S_ISLNK(info.external_attr >> 16)}
                with file.open(infos[_only(path, list(infos), links, wanted, what)]) as stream:
                    yield stream
        else:
            with tarfile.open(path, "r:*") as tar:
                members = {member.name: member for member in tar.getmembers() if not member.isdir()}
                odd = {name for name, member in members.items() if not member.isreg()}
                opened = tar.extractfile(members[_only(path, list(members), odd, wanted, what)])
                assert opened is not None
                with opened:
                    yield opened


@contextlib.contextmanager
def open_gzip(path: Path) -> Iterator[IO[bytes]]:
    """Open a gzip file whose faults become a `DatasetError`."""
    with broken_as_dataset_error(path), gzip.open(path, "rb") as stream:
        yield cast("IO[bytes]", stream)


@contextlib.contextmanager
def broken_as_dataset_error(path: Path) -> Iterator[None]:
    """Turn what reading a broken file raises into a `DatasetError` that names it."""
    try:
        yield
    except BROKEN as error:
        raise DatasetError(
            f"{path}: expected a complete archive, found a corrupt or truncated one ({type(error).__name__}: {error}); "
            "delete it to fetch it again"
        ) from error


def _only(path: Path, names: list[str], odd: set[str], wanted: Callable[[PurePosixPath], bool], what: str) -> str:
    for name in names:
        member = PurePosixPath(name.replace("\\", "/"))
        if member.is_absolute() or ".." in member.parts or name in odd:
            raise DatasetError(
                f"{path}: expected plain files inside the archive's folder, found {name!r} "
                "(a link, a device or a path that leads out); the archive is not used"
            )
    matches = [name for name in names if wanted(PurePosixPath(name))]
    if len(matches) != 1:
        raise DatasetError(f"{path}: expected one {what}, found {matches or 'none among ' + ', '.join(names[:10])}")
    return matches[0]
