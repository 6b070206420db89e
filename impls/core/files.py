"""Files that appear whole or not at all, their names, stamps that show changes, and digests that show damage.

Results of searches may be held in memory, too, for one context: a saved operator brings those of its own.
"""

from __future__ import annotations

import atexit
import grp
import hashlib
import logging
import os
import pwd
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from platformdirs import user_cache_path

from spmark.impls.core.errors import BuildError, SpmarkError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)
T = TypeVar("T")
HELD: ContextVar[dict[str, bytes] | None] = ContextVar("held", default=None)
"""Results of searches by the names of their entries in the cache, so that the same plans can be built elsewhere without
a search. They answer before the files do; what is read or found meanwhile is added."""
ON_DISK: ContextVar[bool] = ContextVar("on_disk", default=True)
"""Whether searches may read and write files; what `HELD` holds answers in any case."""
_LONGEST_NAME = 80
_DIGITS = 8
_COMPONENT = re.compile(rf"[A-Za-z0-9_](?:[A-Za-z0-9._@+-]{{0,{_LONGEST_NAME - 2}}}[A-Za-z0-9_@+-])?")
_UNSAFE = re.compile(r"[^A-Za-z0-9._@+-]+")


class Stamp(NamedTuple):
    """Facts that tell a file from the file that stood in its place before."""

    changed_ns: int
    """Time of the last change of content or metadata: every write sets a new one, even where the time of the content is
    kept."""
    modified_ns: int
    size: int
    inode: int


def path_component(name: str) -> str:
    """Give the name of one file or folder for any name.

    Parameters
    ----------
    name : str
        Any text, such as the device of a record.

    Returns
    -------
    str
        ``name`` itself where it is a safe component: at most 80 ASCII letters, digits and ``._@+-`` that begin with a
        letter, a digit or ``_`` and do not end with a dot. Else its safe letters and eight digits of its SHA-256, which
        keep names apart whose safe letters are the same.
    """
    if _COMPONENT.fullmatch(name):
        return name
    readable = _UNSAFE.sub("-", name).strip("-.@+")[:_LONGEST_NAME].rstrip("-.")
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{readable}-{digest}" if readable else f"name-{digest}"


def at_home(path: str) -> Path:
    """Give a path with the home folder in place of a leading ``~`` or ``~user``; as it is written for an unknown user.

    Shells do the same; `pathlib.Path.expanduser` raises RuntimeError for such a user.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def model_file(folder: Path, name: str, suffix: str) -> Path:
    """Give the file of a model that ships in a folder, by the model's name, or the file of another by its path.

    Raises
    ------
    BuildError
        There is none; names those that ship.
    """
    own = folder / f"{name}{suffix}"
    path = own if is_file(own) else at_home(name)
    if not is_file(path):
        known = ", ".join(sorted(one.stem for one in folder.glob(f"*{suffix}"))) or "none that ship"
        raise BuildError(f"expected a model out of {known}, or the path of a file, found {name!r}")
    return path


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
    """Give the folder of all caches: ``SPMARK_CACHE`` or the user's, as far as `private` takes it."""
    root = os.environ.get("SPMARK_CACHE")
    return private(Path(root) if root else user_cache_path("spmark"))


def constants_file(method: str, device: str) -> Path:
    """Give the path of the constants that this machine measured of a device for an implementation; it may not exist."""
    return cache_root() / "devices" / method / f"{path_component(device)}.json"


def cache_folder() -> Path:
    """Give the folder of compiled kernels in `cache_root`."""
    return cache_root() / "kernels"


def private(folder: Path) -> Path:
    """Give a folder out of which code may be run: the one asked for, or a new one where others may write to that.

    The folder has to belong to this user or to root, and nobody else may write to it. A folder that is missing is made.
    In place of another one, the process gets an empty folder until its end, and a warning says so once.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = folder.stat()
    except OSError:
        return folder  # whoever reads or writes there says what is wrong
    if seen.st_uid not in (os.geteuid(), 0):
        reason = f"it belongs to user {seen.st_uid}, and this process to user {os.geteuid()}"
    elif seen.st_mode & stat.S_IWOTH or (seen.st_mode & stat.S_IWGRP and not _is_group_of_one(seen)):
        reason = f"others may write to it (mode {stat.S_IMODE(seen.st_mode):o}): chmod go-w it"
    else:
        return folder
    return _instead(folder, reason)


def _is_group_of_one(seen: os.stat_result) -> bool:
    """Tell whether a folder's group is its owner's own, as many systems make one for each user."""
    try:
        owner, group = pwd.getpwuid(seen.st_uid), grp.getgrgid(seen.st_gid)
    except KeyError:
        return False
    return group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}


@cache
def _instead(folder: Path, reason: str) -> Path:
    _log.warning("%s: this cache is not used, since %s; an empty one serves until this process ends", folder, reason)
    place = tempfile.mkdtemp(prefix="spmark-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return Path(place)


@contextmanager
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


@contextmanager
def written(path: Path, error: type[SpmarkError]) -> Iterator[Path]:
    """Give a file to write as `whole` does; raises ``error`` where it cannot be written."""
    try:
        with whole(path) as part:
            yield part
    except OSError as why:
        raise error(f"{path}: the file cannot be written: {why.strerror}; name another place") from why


def digest_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Give the SHA-256 over names, types, shapes and contents, whatever the order of the names."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_sealed(path: Path, content: bytes) -> None:
    """Write a cache entry behind a digest of its content and name.

    A cache that cannot be written (full, read-only) costs time, not the result, so that nothing is raised.
    """
    with suppress(OSError), whole(path) as part:
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
    with suppress(OSError):
        os.utime(path)


@contextmanager
def within(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a variable a value inside, such as `HELD` or `ON_DISK`."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def keep_latest(folder: Path, limit_bytes: int) -> None:
    """Remove the files of a cache that were used least recently, until those that stay take at most ``limit_bytes``.

    Processes may do so at once: a file that another one removes first counts as removed. O(n log n) for n files in
    ``folder`` and below it.
    """
    found = [(seen, path) for path in folder.rglob("*") if is_file(path) and (seen := stamp(path))]
    kept = 0
    for seen, path in sorted(found, key=lambda entry: -entry[0].modified_ns):
        kept += seen.size
        if kept > limit_bytes:
            with suppress(OSError):
                path.unlink()


def _seal(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).hexdigest().encode()
