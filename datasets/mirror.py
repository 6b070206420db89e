"""The local mirror, which is asked first: a tree ``<category>/<name>.npz`` and its MANIFEST.tsv.

``category/name`` is a matrix's origin, such as ``suitesparse/HB/bcsstk13``: `add_to_mirror` makes such a folder.
Folders with names of their own work as well: the list of origins has these names as aliases ``mirror/name``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from spmark.datasets.cache import Cache
from spmark.datasets.origins import find_origin
from spmark.datasets.readers.npz import read_npz, write_npz
from spmark.datasets.source import Args, Facts, RawMatrix, Source, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file, whole
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind, MatrixSource

Spec = TypeVar("Spec", bound=MatrixSource)
MANIFEST = "MANIFEST.tsv"
_COLUMNS = ("name", "category", "source", "licence", "rows", "cols", "nnz", "note")
_NOT_MATRICES = frozenset({"hetero", "liteform", "pointcloud"})
"""Categories whose files hold edge lists, measured labels or point clouds."""


@dataclass(frozen=True)
class ManifestLine:
    """A line of the manifest."""

    name: str
    category: str
    facts: Facts
    path: Path

    @property
    def id(self) -> str:
        """``category/name``."""
        return f"{self.category}/{self.name}"


def read_manifest(mirror: Path, *, edges: bool = False) -> list[ManifestLine]:
    """Read the manifest's matrices, and with ``edges`` the lines of all other files.

    Raises
    ------
    DatasetError
        The manifest is missing, or a line does not fit; names the file and the line.
    """
    path = mirror / MANIFEST
    remedy = "set SPMARK_MIRROR to the mirror's folder"
    with reading(path, "the manifest of a mirror", remedy=remedy), path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = sorted(set(_COLUMNS) - set(rows.fieldnames or ()))
        if missing:
            raise DatasetError(
                f"{path}:1: expected the columns {', '.join(_COLUMNS)}, found none of {', '.join(missing)}"
            )
        return [
            _entry(row, mirror, f"{path}:{rows.line_num}")
            for row in rows
            if edges or row["category"] not in _NOT_MATRICES
        ]


def _entry(row: dict[str, str], mirror: Path, where: str) -> ManifestLine:
    try:
        facts = Facts(int(row["rows"]), int(row["cols"]), int(row["nnz"]))
        path = mirror / row["category"] / f"{row['name']}.npz"
        if ".." in path.relative_to(mirror).parts or "\0" in str(path):
            raise ValueError("a name leads out of the mirror")
        return ManifestLine(row["name"], row["category"], facts, path)
    except (TypeError, ValueError) as error:
        raise DatasetError(
            f"{where}: expected a name, a category, and rows, cols and nnz as integers: {error}"
        ) from error


def read_entry(entry: ManifestLine) -> RawMatrix:
    """Read a matrix of the mirror.

    Raises
    ------
    DatasetError
        The file is missing or unreadable, or its counts differ from the manifest's.
    """
    matrix = read_npz(entry.path)
    if matrix.facts != entry.facts:
        raise DatasetError(f"{entry.path}: expected {entry.facts} as MANIFEST.tsv says, found {matrix.facts}")
    return matrix


def find_in_mirror(mirror: Path | None, source: Source, name: str) -> RawMatrix | None:
    """Give a matrix if the mirror has it by its origin, or by an alias with the counts that are listed, else None."""
    entry = _entry_of(mirror, source, name)
    if entry is None:
        return None
    raw = read_entry(entry)
    return raw if source.valued else replace(raw, values=None, kind=MatrixKind.PATTERN)


def has_entry(mirror: Path | None, source: Source, name: str) -> bool:
    """Tell whether a mirror has a matrix, as `find_in_mirror` gives it or as its source reads it."""
    if own := source.mirrored_as(name):
        return mirror is not None and is_file(mirror / own)
    return _entry_of(mirror, source, name) is not None


def _entry_of(mirror: Path | None, source: Source, name: str) -> ManifestLine | None:
    if mirror is None or source.mirrored_as(name):
        return None
    origin = find_origin(source.name, name)
    for entry in read_manifest(mirror):
        other = origin is not None and f"mirror/{entry.name}" in origin.aliases and entry.facts == origin.facts
        if (entry.id == f"{source.name}/{name}" or other) and is_file(entry.path):
            return entry
    return None


def at_origin(spec: Spec, mirror: Path | None) -> Spec:
    """Give the matrix by its origin where its source is ``mirror`` and the folder has nothing of this name."""
    origin = find_origin(spec.source, spec.name)
    if spec.source != Mirror.name or origin is None:
        return spec
    if mirror is not None and any(spec.name in (entry.id, entry.name) for entry in read_manifest(mirror)):
        return spec
    return spec.model_copy(update={"source": origin.source, "name": origin.name})


def add_to_mirror(mirror: Path, spec: MatrixSource, matrix: RawMatrix, licence: str, url: str) -> None:
    """Write a matrix into a mirror under its origin, and a line into the manifest.

    Raises
    ------
    DatasetError
        The manifest of an earlier run cannot be read.
    OSError
        The folder cannot be written.
    """
    with whole(mirror / spec.source / f"{spec.name}.npz") as part:
        write_npz(part, matrix)
    manifest, facts = mirror / MANIFEST, matrix.facts
    earlier = manifest.read_text(encoding="utf-8") if manifest.exists() else "\t".join(_COLUMNS) + "\n"
    line = (spec.name, spec.source, url, licence, facts.num_rows, facts.num_cols, facts.nnz, "")
    with whole(manifest) as part:
        part.write_text(earlier + "\t".join(map(str, line)) + "\n", encoding="utf-8")


class Mirror(Source):
    """The folder that ``SPMARK_MIRROR`` names; its matrices go by ``category/name`` or plain name.

    A listed alias ``mirror/name`` is loaded from its origin where there is no such folder.
    """

    name = "mirror"
    title = "local mirror (SPMARK_MIRROR)"
    licence = "per matrix, in its MANIFEST.tsv"
    citation = "per matrix, in its MANIFEST.tsv"

    def names(self, cache: Cache) -> Sequence[str]:
        """List ``category/name`` of every matrix; nothing without a mirror."""
        return [entry.id for entry in read_manifest(cache.mirror)] if cache.mirror else []

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read a matrix and compare its counts with the manifest's. Takes no arguments."""
        only(f"mirror/{name}", args)
        if cache.mirror is None:
            raise DatasetError(
                f"mirror/{name}: expected SPMARK_MIRROR to name a folder with MANIFEST.tsv, found it unset"
            )
        entries = read_manifest(cache.mirror)
        matches = [entry for entry in entries if name in (entry.id, entry.name)]
        if len(matches) > 1:
            raise DatasetError(f"mirror/{name}: expected one matrix, found {', '.join(entry.id for entry in matches)}")
        if not matches:
            known(f"mirror {cache.mirror}", name, [key for entry in entries for key in (entry.name, entry.id)])
        return read_entry(matches[0])
