"""Files that are seen whole or not at all, files that have changed, and cache entries that show their damage."""

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
    """What tells a file from the one that stood in its place before."""

    changed_ns: int
    """Of the content or of what the system notes of it: a file that is written gets a new one even where it keeps the
    time of its content."""
    modified_ns: int
    size: int
    inode: int


def is_file(path: Path | str) -> bool:
    """Say whether a file stands at a path.

    A name that no file can have (too long, or with a NUL byte) names none; `pathlib.Path.is_file` raises OSError there.
    """
    return os.path.isfile(path)  # noqa: PTH113


def stamp(path: Path | str) -> Stamp | None:
    """Give a file's stamp; None where there is no file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 (what makes a path of every name takes as long again)
    except OSError:
        return None
    return Stamp(seen.st_ctime_ns, seen.st_mtime_ns, seen.st_size, seen.st_ino)


def cache_root() -> Path:
    """Give the folder of all caches: ``SPMARK_CACHE`` or the user's."""
    root = os.environ.get("SPMARK_CACHE")
    return Path(root) if root else user_cache_path("spmark")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a file to write beside ``path``; it takes that name once it is complete, and is removed otherwise.

    Folders that are missing are made. Processes may write the same file at once: the last one's stays.

    Raises
    ------
    OSError
        The file cannot be written; what was there before still is.
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
    """Write a cache entry behind a digest of it and of its name.

    A cache that cannot be written (full, read-only) costs time, not the result, so that nothing is raised.
    """
    with contextlib.suppress(OSError), whole(path) as part:
        part.write_bytes(_seal(path, content) + b"\n" + content)


def read_sealed(path: Path) -> bytes | None:
    """Read a cache entry; None where there is none, or one that is damaged or was written under another name."""
    try:
        seal, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if seal == _seal(path, content) else None


def _seal(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).hexdigest().encode()
