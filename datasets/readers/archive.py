"""Unpacking members of a download into temporary files; no other member reaches the disk.

All members are checked all the same: no publisher ships an archive with absolute paths, ``..``, links or devices.
"""

from __future__ import annotations

import contextlib
import gzip
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, cast

from spmark.datasets.ceiling import ceiling_bytes, check_bytes
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading

Wanted = Callable[[PurePosixPath], bool]
_CHUNK_BYTES = 1 << 20
_READ_INTO_MEMORY = frozenset(
    {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
)
"""Members of a tar that describe the next one."""
_LONGEST_HEADER = 1 << 20
_DENSEST = 100
"""Most bytes that a packed byte stands for: different entries reach 14, and comments without end 1,000."""
_ANY_DENSITY_BYTES = 1 << 24
"""Bytes that may be packed more densely: to read them takes seconds at most."""
_COMPLETE = "a complete archive"
FETCH_AGAIN = "it is corrupt or truncated: delete it to fetch it again"
"""The remedy for a broken download. A file of the user's own is nothing to delete."""


@contextlib.contextmanager
def unpacked_member(path: Path, wanted: Wanted, what: str, remedy: str = "") -> Iterator[Path]:
    """Unpack the only member of a ``.zip`` or ``.tar.gz`` for which ``wanted`` holds.

    Parameters
    ----------
    path : Path
    wanted : callable
        Takes the member's path in the archive.
    what : str
        Name of the member in errors.
    remedy : str
        What to do about a broken archive.

    Raises
    ------
    DatasetError
        The archive is broken, holds an illegal member, holds none or several wanted members, or unpacks to more than
        the ceiling of `spmark.datasets.ceiling`, or than entries can that differ.
    """
    with _temporary(path) as spool:
        with reading(path, _COMPLETE, remedy=remedy):
            if zipfile.is_zipfile(path):
                _from_zip(path, wanted, what, spool)
            else:
                _from_tar(path, wanted, what, spool)
        yield Path(spool.name)


def unpacked_files(path: Path, sizes: Mapping[str, int]) -> Iterator[tuple[str, Path]]:
    """Unpack the members of a ``.tar``, one after another in the archive's order, and give each with its name.

    A member's file is there until the next member is asked for. Nothing is unpacked of a member that ``sizes`` does not
    name, or names with another size; members before it have been given.

    Parameters
    ----------
    path : Path
        The archive, compressed or not.
    sizes : mapping of str to int
        Bytes of every member that may be there, by name.

    Raises
    ------
    DatasetError
        The archive is broken, holds an illegal member, or one that is not named, is named with another size or was
        given before.
    """
    given: set[str] = set()
    with reading(path, _COMPLETE, remedy=FETCH_AGAIN), tarfile.open(path, "r|*", tarinfo=_Member) as tar:
        for member in tar:
            _refuse_odd(path, member.name, not member.isreg() or member.issparse())
            size = sizes.get(member.name)
            if size is None or member.name in given:
                why = "again" if member.name in given else "which is none of them"
                raise DatasetError(
                    f"{path}: expected at most {len(sizes)} known members, each once, found {member.name!r}, {why}; "
                    "the rest of the archive is not used"
                )
            if member.size != size:
                raise DatasetError(
                    f"{path}: expected {size:,} bytes of {member.name}, found {member.size:,}; "
                    "the rest of the archive is not used"
                )
            given.add(member.name)
            with _temporary(path) as spool:
                if (stream := tar.extractfile(member)) is not None:
                    _copy(stream, spool, str(path))
                yield member.name, Path(spool.name)


@contextlib.contextmanager
def unpacked_gzip(path: Path, name: str = "", remedy: str = "") -> Iterator[Path]:
    """Unpack a gzip file; errors call the file ``name``, or its path where ``name`` is empty, and end with ``remedy``.

    Raises
    ------
    DatasetError
        The file is broken, or unpacks to more than the ceiling, or than entries can that differ.
    """
    with _temporary(path) as spool:
        with reading(name or path, _COMPLETE, remedy=remedy), gzip.open(path, "rb") as stream:
            _copy(cast("IO[bytes]", stream), spool, name or str(path), path.stat().st_size)
        yield Path(spool.name)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[IO[bytes]]:
    try:
        spool = tempfile.NamedTemporaryFile(prefix="spmark-")
    except OSError as error:
        raise _no_room(path, error) from error
    with spool:
        yield cast("IO[bytes]", spool)


def _no_room(where: Path | str, error: OSError) -> DatasetError:
    return DatasetError(
        f"{where}: cannot be unpacked ({error.strerror}); make room in {tempfile.gettempdir()}, or name another folder "
        "with TMPDIR"
    )


def _copy(stream: IO[bytes], spool: IO[bytes], where: str, packed: int | None = None) -> None:
    """Unpack up to the ceiling, and not much more than ``packed`` bytes can hold where no size was known before."""
    ceiling, size = ceiling_bytes(), 0
    most = ceiling if packed is None else max(_ANY_DENSITY_BYTES, _DENSEST * packed)
    while block := stream.read(_CHUNK_BYTES):
        size += len(block)
        if size > ceiling:
            check_bytes(where, "its unpacked content", size)
        if size > most:
            raise DatasetError(
                f"{where}: expected at most {most:,} bytes in its {packed:,}, as entries that differ never pack so "
                "well, found more; if its content is right, unpack it and name the file in it"
            )
        try:
            spool.write(block)
            spool.flush()
        except OSError as error:
            raise _no_room(where, error) from error


def _from_zip(path: Path, wanted: Wanted, what: str, spool: IO[bytes]) -> None:
    with zipfile.ZipFile(path) as file:
        infos = {info.filename: info for info in file.infolist() if not info.is_dir()}
        for name, info in infos.items():
            _refuse_odd(path, name, stat.S_ISLNK(info.external_attr >> 16))
        with file.open(infos[_only(path, list(infos), wanted, what)]) as stream:
            _copy(stream, spool, str(path), path.stat().st_size)


def _from_tar(path: Path, wanted: Wanted, what: str, spool: IO[bytes]) -> None:
    """Read the archive once, from start to end: skipped members are unpacked as well, but not kept."""
    names, total = [], 0
    with tarfile.open(path, "r|*", tarinfo=_Member) as tar:
        for member in tar:
            if member.isdir():
                continue
            # A sparse member claims zeros that the archive does not hold.
            _refuse_odd(path, member.name, not member.isreg() or member.issparse())
            total += member.size
            check_bytes(str(path), "its unpacked content", total)
            names.append(member.name)
            if wanted(PurePosixPath(member.name)) and (stream := tar.extractfile(member)) is not None:
                _copy(stream, spool, str(path), path.stat().st_size)
    _only(path, names, wanted, what)


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Read a header, but refuse a size that would have too much read into memory."""
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in _READ_INTO_MEMORY and member.size > _LONGEST_HEADER):
            raise tarfile.ReadError(f"a member of type {member.type!r} and {member.size} bytes")
        return member


def _refuse_odd(path: Path, name: str, odd: bool) -> None:
    member = PurePosixPath(name.replace("\\", "/"))
    if odd or member.is_absolute() or ".." in member.parts:
        raise DatasetError(
            f"{path}: expected plain files inside the archive's folder, found {name!r} "
            "(a link, a device or a path that leads out); the archive is not used"
        )


def _only(path: Path, names: list[str], wanted: Wanted, what: str) -> str:
    matches = [name for name in names if wanted(PurePosixPath(name))]
    if len(matches) != 1:
        listed = ", ".join(map(repr, matches[:10])) or "none among " + ", ".join(map(repr, names[:10]))
        raise DatasetError(f"{path}: expected one {what}, found {listed}")
    return matches[0]
