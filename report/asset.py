"""Which side files of published records stand in a release's archive, and which of these are not beside their records.

``candidates.jsonl`` holds every config that a search measured: more than half of what is published, and nothing
that a speed-up is made of. The manifest ``candidates.json`` at the top of the published records names all of these
files with bytes and digests. A sample stays in git, and ``spmark fetch candidates`` brings the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import is_file
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.guard import reading
from spmark.impls.core.names import path_component
from spmark.impls.core.plainjson import parse_model
from spmark.impls.core.recordfile import row_files
from spmark.impls.core.unpack import ARCHIVES
from spmark.report.records import Paths, record_files

MANIFEST = "candidates.json"
CANDIDATES = "candidates.jsonl"
"""Name of the side file; that of an archive goes on (`spmark.impls.core.unpack.ARCHIVES`)."""
HOME = Path("report/reference")
"""Where the published records stand in a checkout."""
FETCH = "spmark fetch candidates"
FILES = tuple(f"{CANDIDATES}{archive}" for archive in ARCHIVES)
"""Names of archives of candidates."""
_HEX = r"^[0-9a-f]{64}$"
_MOST_BYTES = 1 << 30
_NAMED = 5
"""Folders that a message names; it counts the others."""
_log = logging.getLogger(__name__)


class PublishedFile(Frozen):
    """One side file."""

    model_config = ConfigDict(strict=True)

    path: str = Field(max_length=300)
    """From the manifest's folder, with ``/`` between folders; also the file's name in the archive."""
    bytes: int = Field(gt=0, le=_MOST_BYTES)
    sha256: str = Field(pattern=_HEX)

    @model_validator(mode="after")
    def _stays_inside(self) -> Self:
        *folders, name = self.path.split("/")
        if not folders or name not in FILES or any(path_component(folder) != folder for folder in folders):
            raise ValueError(f"expected folders of plain names and one of {', '.join(FILES)}, found {self.path!r}")
        return self


class CandidateAsset(Frozen):
    """The manifest: the archive of a release, and what is in it."""

    model_config = ConfigDict(strict=True)

    schema_version: Literal[1] = 1
    tag: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    """Of the release that has the archive."""
    archive: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,75}\.tar$")
    """Name of the archive."""
    url: str | None = Field(pattern=r"^https?://[!-~]{1,500}$")
    """Address of the archive; None where the project has no public address yet."""
    bytes: int = Field(gt=0, le=_MOST_BYTES)
    """Size of the archive."""
    sha256: str = Field(pattern=_HEX)
    """Digest of the archive."""
    commit: str | None = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")
    """Commit of this repository that holds all files; None where no commit does."""
    files: tuple[PublishedFile, ...] = Field(min_length=1, strict=False)  # JSON has lists only

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        paths = [one.path for one in self.files]
        if paths != sorted(set(paths)):
            raise ValueError("expected files in the order of their paths, each once")
        return self


def read_asset(path: Path) -> CandidateAsset:
    """Read a manifest.

    Raises
    ------
    RecordError
        The file cannot be read, or is no such manifest.
    """
    remedy = "restore it with git, or write it with scripts/reference.py pack"
    with reading(path, "the manifest of published candidates", RecordError, remedy=remedy):
        return parse_model(CandidateAsset, path.read_bytes())


def absent_candidates(paths: Paths) -> dict[Path, PublishedFile]:
    """Give the folders with records, among and under ``paths``, whose published candidates are not there.

    Raises
    ------
    RecordError
        A path does not exist.
    """
    known: dict[Path, Mapping[Path, PublishedFile]] = {}
    absent = {}
    for folder in dict.fromkeys(file.parent for file in record_files(paths)):
        for above in folder.parents[:3]:
            if above not in known:
                known[above] = _listed(above)
            listed = known[above].get(folder)
            if listed and not row_files(folder, CANDIDATES):
                absent[folder] = listed
    return absent


def _listed(above: Path) -> Mapping[Path, PublishedFile]:
    """Give the folders that a manifest in ``above`` names; none where a file of that name is something else."""
    path = above / MANIFEST
    if not is_file(path):
        return {}
    try:
        return {(above / PurePosixPath(one.path)).parent: one for one in read_asset(path).files}
    except RecordError as error:
        _log.warning("passed over: %s", error)
        return {}


def absence(absent: Mapping[Path, PublishedFile]) -> str:
    """Say in one line whose candidates are not there, and which command brings them; empty where none is absent."""
    if not absent:
        return ""
    size = sum(one.bytes for one in absent.values())
    into = {folder.parents[one.path.count("/") - 1] for folder, one in absent.items()}
    return (
        f"expected {CANDIDATES}, which holds what searches measured, beside the records of {_joined(absent)}, found "
        f"none: these files are published apart ({size:,} bytes); {' and '.join(sorted(map(_command, into)))} "
        "brings them"
    )


def _joined(folders: Mapping[Path, PublishedFile]) -> str:
    names: Sequence[str] = [folder.name for folder in folders]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _command(into: Path) -> str:
    here = Path.cwd().resolve()
    place = into.relative_to(here) if into.is_relative_to(here) else into
    return f"`{FETCH}`" if place == HOME else f"`{FETCH} --into {place}`"
