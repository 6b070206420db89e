"""How classes from outside of spmark are named: by a file, or by what an installed distribution offers.

A person writes ``./mine.py:MyKernel``, or a CUDA file, ``./mine.cu``. Distributions offer by entry points, which are
found by name, without an import of any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.files import at_home

_WRITTEN = re.compile(r"(?:(?P<cuda>.+\.cu)|(?P<python>.+\.py):(?P<label>[A-Za-z_]\w*))")


@dataclass(frozen=True)
class FileClass:
    """A class in a Python file, or the kernel that a CUDA file declares."""

    file: Path
    label: str
    """The name of the class; empty for a CUDA file."""

    def __str__(self) -> str:
        return f"{self.file}:{self.label}" if self.label else str(self.file)


def is_file_class(text: str) -> bool:
    """Tell whether a text names an implementation by its file."""
    return _WRITTEN.fullmatch(text) is not None


def parse_file_class(text: str, folder: Path | None = None) -> FileClass | None:
    """Give the file and the class that a text names, with an absolute path; None where it names no file.

    Parameters
    ----------
    text : str
    folder : Path, optional
        Where a relative path begins; by default the current folder.

    Raises
    ------
    OSError, RuntimeError, ValueError
        No file can have that path: a loop of links, a NUL byte.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return None
    return FileClass(
        ((folder or Path.cwd()) / at_home(found["cuda"] or found["python"])).resolve(), found["label"] or ""
    )


IMPLEMENTATION_GROUP, SOURCE_GROUP = "spmark.implementations", "spmark.sources"
"""Groups of entry points: each entry has a name and a class, as ``mine = "package.module:Class"``."""


@dataclass(frozen=True)
class Offer:
    """One class that a distribution offers under a name."""

    name: str
    entry: str
    """``module:class``."""
    owner: str
    """The distribution and its version, for messages."""

    def load(self, error: type[SpmarkError]) -> Any:
        """Import the class.

        Raises
        ------
        SpmarkError
            Of the type ``error``: the import failed, or the module has no such class.
        """
        try:
            return resolve_name(self.entry)
        except (Exception, SystemExit) as fault:
            raise error(
                f"{self.name}: expected {self.owner} to hold {self.entry}, found {type(fault).__name__}: {fault}; "
                "mend or uninstall that distribution"
            ) from fault


@cache
def offers(group: str) -> Mapping[str, tuple[Offer, ...]]:
    """Give what is offered in a group, by name. Reads the metadata of all distributions once for a process."""
    found: dict[str, tuple[Offer, ...]] = {}
    for point in entry_points(group=group):
        owner = "a distribution without a name" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        found[point.name] = (*found.get(point.name, ()), Offer(point.name, point.value, owner))
    return found


def find_offer(group: str, name: str, own: Mapping[str, str], error: type[SpmarkError]) -> Offer | None:
    """Give what a distribution offers under ``name``; None where spmark itself or nobody has the name.

    Parameters
    ----------
    group : str
        `IMPLEMENTATION_GROUP` or `SOURCE_GROUP`.
    name : str
    own : mapping of str to str
        Spmark's own entries.
    error : type of SpmarkError
        What to raise.

    Raises
    ------
    SpmarkError
        The name has two owners; the message names both.
    """
    found = offers(group).get(name, ())
    owners = [*(["spmark"] if name in own else []), *(offer.owner for offer in found)]
    if len(owners) > 1:
        raise error(f"{group}: expected one owner of the name {name!r}, found {' and '.join(owners)}: uninstall one")
    return found[0] if found else None
