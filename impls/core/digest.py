"""Digests of source folders, which tell what code a record or a cached binary came from."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from spmark.impls.core.files import Stamp, is_file, stamp
from spmark.impls.core.normalise import CPP_FILES, normalised

_FORMAT: Final = "2"
"""Counts up when the same code gets another digest: 2 leaves comments and docstrings out."""
_SHARED: Final = ("core", "formats", "kernels", "runtime", "tuning")
"""Folders that every implementation may depend on."""
_SKIPPED: Final = ("__pycache__", "README.md")
_STUDY: Final = "study"
"""Folder of the code that trains and measures labels; building a plan uses none of that code."""
_log = logging.getLogger(__name__)


class Sources:
    """The files of a folder, with a check that they have not changed since this object was made.

    Parameters
    ----------
    root : Path
        Holds a folder for each package.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._began = dict(_stamps(self._root))

    def files(self) -> Iterator[Path]:
        """Give the files that were there at the beginning."""
        return map(Path, self._began)

    def changed(self, files: Iterable[Path]) -> bool:
        """Say whether one of ``files`` has changed since the beginning."""
        return any(stamp(path) != self._began.get(str(path)) for path in files)

    def version(self, package: str) -> str:
        """Give sixteen hex digits over the code of a package and of the folders that every package may depend on.

        Names of files count; comments, docstrings and the package's folder ``study`` do not. Where a file has changed
        since the beginning, this process may mix old code and new: the digest is then one that unchanged code never
        has.
        """
        folders = [f"{self._root}{os.sep}{name}" for name in sorted({*_SHARED, package})]
        starts = tuple(f"{folder}{os.sep}" for folder in folders)
        study = f"{self._root}{os.sep}{package}{os.sep}{_STUDY}{os.sep}"
        now = {path: seen for folder in folders for path, seen in _stamps(folder) if not path.startswith(study)}
        then = {p: seen for p, seen in self._began.items() if p.startswith(starts) and not p.startswith(study)}
        return _version(self._root, tuple(sorted(now.items())), now != then)


@cache
def _version(root: str, files: tuple[tuple[str, Stamp], ...], mixed: bool) -> str:
    digest = hashlib.sha256(f"{_FORMAT}\0".encode())
    for path, seen in files:
        digest.update(f"{Path(path).relative_to(root).as_posix()}\0{_file_digest(path, seen)}\0".encode())
    if mixed:
        _log.warning("%s: code has changed since this process began; its records belong to no version", root)
        digest.update(b"changed while it was in use")
    return digest.hexdigest()[:16]


@cache
def _file_digest(path: str, _seen: Stamp) -> str:
    return hashlib.sha256(normalised(Path(path))).hexdigest()


def _stamps(folder: str) -> Iterator[tuple[str, Stamp]]:
    """Stamp every file of code or data, which leaves out hidden files, notes and Python's caches."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir():
            yield from _stamps(entry.path)
        elif (seen := stamp(entry.path)) is not None:
            yield entry.path, seen


SOURCES: Final = Sources(Path(__file__).parents[1])
"""The folder `impls`, as it was when this process began to load it."""


class OutsideSources:
    """The files of an implementation that stands outside of this package, with the same check.

    Parameters
    ----------
    file : Path
        Where the class stands. In a folder with an ``__init__.py`` the whole folder counts, else the file and the CUDA
        and C++ sources beside it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = self._now()

    def version(self) -> str:
        """Give sixteen hex digits over these files and the folders that every implementation may depend on."""
        now = self._now()
        own = _version(str(self._file.parent), tuple(sorted(now.items())), now != self._began)
        return hashlib.sha256(f"{SOURCES.version(_SHARED[0])}\0{own}".encode()).hexdigest()[:16]

    def _now(self) -> dict[str, Stamp]:
        folder = self._file.parent
        if is_file(folder / "__init__.py"):
            return dict(_stamps(str(folder)))
        beside = sorted(path for path in folder.iterdir() if path.suffix in CPP_FILES)
        return {str(path): seen for path in (self._file, *beside) if (seen := stamp(path)) is not None}


_OUTSIDE: dict[str, OutsideSources] = {}


def keep_sources(name: str, sources: OutsideSources) -> None:
    """Let `implementation_version` know the implementation ``name`` by these files."""
    _OUTSIDE[name] = sources


def implementation_version(package: str) -> str:
    """Digest the code that a result of the implementation in ``impls/<package>`` depends on.

    This code is its folder without ``study``, and core, formats, kernels, runtime and tuning, as this process loaded
    them (`Sources.version`). For an implementation from outside, ``package`` is its name (`keep_sources`).
    """
    return _OUTSIDE[package].version() if package in _OUTSIDE else SOURCES.version(package)
