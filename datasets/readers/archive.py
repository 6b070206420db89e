"""Unpacking one file of a download or of a person's archive into a temporary file; no other file reaches the disk."""

from __future__ import annotations

import contextlib
import gzip
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, cast

from spmark.datasets.source import VARIABLE, ceiling_bytes
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.untrusted import reading

_CHUNK_BYTES = 1 << 20
_DENSEST = 100
"""Most bytes that a packed byte stands for: different entries reach 14, and comments without end 1,000."""
_ANY_DENSITY_BYTES = 1 << 24
"""Bytes that may be packed more densely: to read them takes seconds at most."""
FETCH_AGAIN = "it is corrupt or truncated: delete it to fetch it again"
"""The remedy for a broken download. A file of the user's own is nothing to delete."""
_Members = Iterable[tuple[str, Callable[[], IO[bytes]]]]
"""Files of an archive by name, each with what opens it."""


@contextlib.contextmanager
def unpacked(path: Path, member: str = "", remedy: str = "") -> Iterator[Path]:
    """Unpack a gzip file, or the only file of a zip or tar archive that ``member`` names.

    Parameters
    ----------
    path : Path
    member : str
        How the file's path in the archive ends, in capitals or not; a member in gzip is unpacked, too. Empty where
        ``path`` is no archive, but a file in gzip.
    remedy : str
        What to do about a broken archive.

    Raises
    ------
    DatasetError
        The archive is broken, holds none or several files of this name, or unpacks to more than the ceiling of
        `spmark.datasets.source`, or than entries can that differ.
    """
    where = f"{path}: {member}" if member else str(path)
    with contextlib.ExitStack() as stack:
        with reading(where, "a complete archive", remedy=remedy):
            spool = cast("IO[bytes]", stack.enter_context(tempfile.NamedTemporaryFile(prefix="spmark-")))
            members: _Members = _members(path) if member else [(".gz", lambda: path.open("rb"))]
            found, wanted = [], f"/{member}".lower() if member else ""
            for name, opened in members:  # to the end of a tar, whose damage shows there
                if f"/{name}".lower().endswith(wanted):
                    found.append(name)
                    with opened() as stream:
                        content = cast("IO[bytes]", gzip.open(stream)) if name.endswith(".gz") else stream
                        _copy(content, spool, where, path.stat().st_size)
        if len(found) != 1:
            raise DatasetError(f"{path}: expected one {member}, found {', '.join(map(repr, found)) or 'none'}")
        yield Path(spool.name)


def unpacked_files(path: Path, wanted: Callable[[str], bool], remedy: str = "") -> Iterator[tuple[str, Path]]:
    """Unpack files of a zip or tar archive one after the other, in one pass.

    Parameters
    ----------
    path : Path
    wanted : callable
        Says of a file's whole path in the archive whether to unpack it.
    remedy : str
        What to do about a broken archive.

    Yields
    ------
    str, Path
        A name, and a temporary file that lasts until the next one.

    Raises
    ------
    DatasetError
        As `unpacked`.
    """
    with reading(path, "a complete archive", remedy=remedy):
        for name, opened in _members(path):
            if wanted(name):
                with tempfile.NamedTemporaryFile(prefix="spmark-") as spool, opened() as stream:
                    _copy(stream, cast("IO[bytes]", spool), f"{path}: {name}", path.stat().st_size)
                    yield name, Path(spool.name)


def _members(path: Path) -> _Members:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from ((info.filename, partial(archive.open, info)) for info in archive.infolist())
    else:
        with tarfile.open(path, "r|*") as tar:
            # A sparse member claims zeros that the archive does not hold.
            plain = (info for info in tar if info.isreg() and not info.issparse())
            yield from ((info.name, partial(cast("Callable[..., IO[bytes]]", tar.extractfile), info)) for info in plain)


def _copy(content: IO[bytes], spool: IO[bytes], where: str, packed: int) -> None:
    """Unpack up to the ceiling, and not much more than ``packed`` bytes can hold."""
    most, size = min(ceiling_bytes(), max(_ANY_DENSITY_BYTES, _DENSEST * packed)), 0
    while block := content.read(_CHUNK_BYTES):
        size += len(block)
        if size > most:
            raise DatasetError(
                f"{where}: expected at most {most:,} bytes in its {packed:,}, by {VARIABLE} and since entries that "
                "differ never pack better, found more; if its content is right, unpack it and name the file in it"
            )
        try:
            spool.write(block)
            spool.flush()
        except OSError as error:
            raise DatasetError(
                f"{where}: cannot be unpacked ({error.strerror}); make room in {tempfile.gettempdir()}, or name "
                "another folder with TMPDIR"
            ) from error
