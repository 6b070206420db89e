"""What a shell offers after the tabulator key: names and files that begin with what is typed.

A shell waits for each answer, so that nothing heavy is imported: names come from tables, metadata and folders. No code
of an installed distribution or of a file is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from spmark.datasets.sources.table import FILES, source_names
from spmark.impls.core.files import at_home
from spmark.impls.table import implementation_names

_SWEEPS = (".yaml", ".yml")


def sweeps(incomplete: str) -> list[str]:
    """Offer packaged sweeps, and YAML files."""
    return _begun(incomplete, (*_packaged("sweeps"), *_files(incomplete, _SWEEPS)))


def fetchable(incomplete: str) -> list[str]:
    """Offer sweeps, and what else can be fetched."""
    return [*_begun(incomplete, ["candidates"]), *sweeps(incomplete)]


def papers(incomplete: str) -> list[str]:
    """Offer papers that ship with spmark, and YAML files."""
    return _begun(incomplete, (*_packaged("sweeps", "papers"), "all", *_files(incomplete, _SWEEPS)))


def implementations(incomplete: str) -> list[str]:
    """Offer implementations, those of installed distributions included."""
    return _begun(incomplete, implementation_names())


def matrices(incomplete: str) -> list[str]:
    """Offer sources, to be followed by a name, and files of matrices."""
    return _begun(incomplete, (*(f"{source}/" for source in source_names()), *_files(incomplete, tuple(FILES))))


def _begun(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _packaged(*folders: str) -> Iterator[str]:
    """Give the names of YAML files that ship with the data sets."""
    folder = Path(str(files("spmark.datasets"))).joinpath(*folders)
    return (path.stem for path in sorted(folder.glob("*.yaml")))


def _files(incomplete: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Give the folders and files beside what is typed, written as it is: ``./``, ``~/`` and all."""
    typed, slash, _ = incomplete.rpartition("/")
    with suppress(OSError):
        for path in sorted(at_home(typed + slash).iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield f"{typed}{slash}{path.name}/"
            elif path.name.lower().endswith(endings):
                yield f"{typed}{slash}{path.name}"
