"""Files that appear whole or not at all, stamps that show changed files, and cache entries that show their damage."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path


class Stamp(NamedTuple):
    """Facts that tell a file from the file that stood in its place before."""

    changed_ns: int
    """Time of the last change of content or metadata: every write sets a new one, even where the time of the content is
    kept."""
    modified_ns: int
    size: int
    inode: int


def is_file(path: Path | str) -> bool:
    """Say whether a file stands at a path.

    The answer is no for a name that is too long or has a NUL byte, where `pathlib.Path.is_file` raises OSError.
    """
    return os.path.isfile(path)  # noqa: PTH113


def in_place_of_file(path: Path | str) -> str:
    """Say what stands at a path where `is_file` says no, after the word "found"."""
    return "a folder" if os.path.isdir(path) else "none"  # noqa: PTH112


def stamp(path: Path | str) -> Stamp | None:
    """Give a file's stamp; None where there is no file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 (making a Path of every name takes as long again)
    except OSError:
        return None
    return Stamp(seen.st_ctime_ns, seen.st_mtime_ns, seen.st_size, seen.st_ino)


def cache_root() -> Path:
    """Give the folder of all caches: ``SPMARK_CACHE`` or the user's."""
    root = os.environ.get("SPMARK_CACHE")
    return Path(root) if root else user_cache_path("spmark")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a file to write beside ``path``: the complete file takes the name ``path``, an incomplete one is removed.

    Missing folders are made. Processes may write the same path at once: the file of the last one stays.

    Raises
    ------
    OSError
        The file cannot be written; an older file at ``path`` stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    part = Path(name)
    part.chmod(0o644)  # others may share the folder; mkstemp lets only its maker read
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_sealed(path: Path, content: bytes) -> None:
    """Write a cache entry behind a digest of its content and name.

    A cache that cannot be written (full, read-only) costs time, not the result, so that nothing is raised.
    """
    with contextlib.suppress(OSError), whole(path) as part:
        part.write_bytes(_seal(path, content) + b"\n" + content)


def read_sealed(path: Path) -> bytes | None:
    """Read a cache entry; None where the entry is missing, damaged or was written under another name."""
    try:
        seal, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if seal == _seal(path, content) else None


def mark_used(path: Path) -> None:
    """Let a cache entry count as used now, by the time of its last change; a read-only cache stays as it is."""
    with contextlib.suppress(OSError):
        os.utime(path)


def keep_latest(folder: Path, limit_bytes: int) -> None:
    """Remove the files of a cache that were used least recently, until those that stay take at most ``limit_bytes``.

    Processes may do so at once: a file that another one removes first counts as removed. O(n log n) for n files in
    ``folder`` and below it.
    """
    found = [(stamp(path), path) for path in folder.rglob("*") if is_file(path)]
    kept = 0
    for seen, path in sorted(((seen, path) for seen, path in found if seen), key=_latest, reverse=True):
        kept += seen.size
        if kept > limit_bytes:
            with contextlib.suppress(OSError):
                path.unlink()


def _latest(entry: tuple[Stamp, Path]) -> int:
    return entry[0].modified_ns


def _seal(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).hexdigest().encode()
