"""The local mirror: a tree ``<category>/<name>.npz`` and its MANIFEST.tsv, whose counts every load checks."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spmark.datasets.cache import Cache
from spmark.datasets.readers.npz import read_npz
from spmark.datasets.source import Args, Facts, RawMatrix, Source, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

_COLUMNS = ("name", "category", "source", "licence", "rows", "cols", "nnz", "note")
_NOT_MATRICES = frozenset({"hetero", "liteform", "pointcloud"})
"""Categories whose files hold edge lists, measured labels or point clouds."""


@dataclass(frozen=True)
class ManifestLine:
    """A line of the manifest."""

    name: str
    category: str
    facts: Facts
    note: str
    path: Path

    @property
    def id(self) -> str:
        """``category/name``."""
        return f"{self.category}/{self.name}"


def read_manifest(mirror: Path) -> list[ManifestLine]:
    """Read the manifest's matrices.

    Raises
    ------
    DatasetError
        The manifest is missing, or a line does not fit; names the file and the line.
    """
    path = mirror / "MANIFEST.tsv"
    remedy = "set SPMARK_MIRROR to the mirror's folder"
    with reading(path, "the manifest of a mirror", remedy=remedy), path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = sorted(set(_COLUMNS) - set(rows.fieldnames or ()))
        if missing:
            raise DatasetError(
                f"{path}:1: expected the columns {', '.join(_COLUMNS)}, found none of {', '.join(missing)}"
            )
        return [_entry(row, mirror, f"{path}:{rows.line_num}") for row in rows if row["category"] not in _NOT_MATRICES]


def _entry(row: dict[str, str], mirror: Path, where: str) -> ManifestLine:
    try:
        facts = Facts(int(row["rows"]), int(row["cols"]), int(row["nnz"]))
        path = mirror / row["category"] / f"{row['name']}.npz"
        if ".." in path.relative_to(mirror).parts or "\0" in str(path):
            raise ValueError("a name leads out of the mirror")
        return ManifestLine(row["name"], row["category"], facts, row["note"] or "", path)
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
    """Give a network source's matrix if the mirror has it with the counts that the source states, else None.

    A source without stated counts (SuiteSparse) takes a matrix only where the manifest's note has its full name.
    """
    if mirror is None:
        return None
    expected = source.facts(name)
    for entry in read_manifest(mirror):
        if not is_file(entry.path):
            continue
        if expected is None and entry.note.replace(";", " ").split()[:2] == ["SuiteSparse", name]:
            return read_entry(entry)
        if entry.name == name and entry.facts == expected:
            # These collections publish edges without values; the mirror's files hold ones.
            return replace(read_entry(entry), values=None, kind=MatrixKind.PATTERN)
    return None


class Mirror(Source):
    """The folder that ``SPMARK_MIRROR`` names; its matrices go by ``category/name`` or plain name."""

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
