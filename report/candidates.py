"""What searches saw of each config, beside the records of their cases: the side files ``candidates.jsonl``.

Only medians are kept: a sweep's side file holds tens of thousands of sample lists.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from math import nan
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

import pandas as pd
from pydantic import ConfigDict, Field, model_validator

from spmark.impls.core.errors import DatasetError, RecordError
from spmark.impls.core.files import is_file, path_component
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.records.plausible import read_candidates
from spmark.records.rowfile import row_files
from spmark.records.schema import CandidateRow
from spmark.records.unpack import ARCHIVES
from spmark.report.records import Paths, record_files

COLUMNS = ("case_id", "implementation_version", "environment", "candidate", "predicted", "seen_us")
"""Columns of `load_candidates`; ``candidate`` is the config, ``seen_us`` its median, NaN where it was only scored."""
OF_CASE = ("case_id", "implementation_version", "environment")
"""Columns that tell the case of a candidate."""
_OF = attrgetter(*OF_CASE)
_TOLD = ["op", "dtype", "matrix", "matrix_kind", "nnz", "width", "seed", "label", "implementation", "config"]


def read_seen(paths: Sequence[Path]) -> Iterator[CandidateRow]:
    """Read what searches saw beside every record file among and under ``paths``, oldest first.

    Raises
    ------
    RecordError
        A path is missing, a file cannot be read, or a complete line is not a candidate.
    """
    for folder in dict.fromkeys(file.parent for file in record_files(paths)):
        for side in row_files(folder, CANDIDATES):
            yield from read_candidates(side)


def load_candidates(paths: Sequence[Path], records: pd.DataFrame | None = None) -> pd.DataFrame:
    """Read the candidates beside every record file among and under ``paths``.

    Parameters
    ----------
    paths : sequence of Path
        As `spmark.report.records.load_records` takes them.
    records : DataFrame, optional
        With the columns `OF_CASE`. Only candidates that `measured` can use are then read:
        those of the records' cases that were timed.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row for each config of each case; of a config that stands there twice the newer row counts. Empty
        where no search kept its candidates.

    Raises
    ------
    RecordError
        A path is missing, a file cannot be read, or a complete line is not a candidate.
    """
    folders = dict.fromkeys(file.parent for file in record_files(paths))
    names, parts = list(OF_CASE), [_of_folder(folder, timed=records is not None) for folder in folders]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
    if records is not None:
        known = pd.MultiIndex.from_frame(records[names])
        frame = frame[(frame["seen_us"] > 0) & pd.MultiIndex.from_frame(frame[names]).isin(known)]
    older = frame[names].assign(config=frame["candidate"].map(_identity)).duplicated(keep="last")
    return frame[~older].reset_index(drop=True)


def _of_folder(folder: Path, *, timed: bool) -> pd.DataFrame:
    return _of_files(tuple((side, side.stat().st_mtime_ns) for side in row_files(folder, CANDIDATES)), timed)


@functools.lru_cache(maxsize=32)
def _of_files(sides: tuple[tuple[Path, int], ...], timed: bool) -> pd.DataFrame:
    """Read files as of their times of change: the pages of several sweeps look at the same ones."""
    rows = [
        (*_OF(row), row.config, row.predicted, median(row.samples_us) if row.samples_us else nan)
        for side, _ in sides
        for row in read_candidates(side, timed=timed)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"predicted": float, "seen_us": float})


def _identity(config: Mapping[str, Any]) -> Hashable:
    """Give what equal configs share."""
    try:
        return frozenset(config.items())
    except TypeError:  # a value holds further values
        return json.dumps(config, sort_keys=True, default=str)


def measured(derived: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Give the candidates that were timed, with columns of their cases.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    candidates : DataFrame
        As `load_candidates` gives it.

    Returns
    -------
    DataFrame
        `COLUMNS`, and ``op, dtype, matrix, matrix_kind, nnz, width, seed, label, implementation``, and ``config``, what
        the plan of the case chose; cases without a result are left out. So are cases that stand for several patterns,
        as where a file was replaced by another of its name: a candidate does not say of which pattern it is.
    """
    timed = candidates[candidates["seen_us"] > 0]
    cases = derived.loc[derived["median_us"].notna(), [*OF_CASE, *_TOLD]].drop_duplicates(list(OF_CASE), keep=False)
    return timed.merge(cases, on=list(OF_CASE), validate="many_to_one")


MANIFEST = "candidates.json"
CANDIDATES = "candidates.jsonl"
"""Name of the side file; that of an archive goes on (`spmark.records.unpack.ARCHIVES`)."""
HOME = Path("report/reference")
"""Where the published records stand in a checkout."""
FETCH = "spmark fetch candidates"
FILES = tuple(f"{CANDIDATES}{archive}" for archive in ARCHIVES)
"""Names of archives of candidates."""
_HEX = r"^[0-9a-f]{64}$"
_MOST_BYTES = 1 << 30
_NAMED = 5
"""Folders that a message names; it counts the others."""
Download = Callable[[str, str, str, str], Path]
"""Fetches a URL to a place of the cache, checks its SHA-256, and tells in errors what to do without a network."""
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


def read_asset(path: Path) -> CandidateAsset:
    """Read a manifest.

    Raises
    ------
    RecordError
        The file cannot be read, or is no such manifest.
    """
    remedy = f"name the {HOME} of a checkout with --into; restore the file with git, or by scripts/reference.py pack"
    with reading(path, "the manifest of published candidates", RecordError, remedy=remedy):
        return parse_model(CandidateAsset, path.read_bytes())


def absent_candidates(paths: Paths) -> dict[Path, PublishedFile]:
    """Give the folders with records, among and under ``paths``, whose published candidates are not there.

    Raises
    ------
    RecordError
        A path does not exist.
    """
    listed = functools.cache(_listed)
    folders = {file.parent for file in record_files(paths)}
    named = {
        folder: listed(above)[folder] for folder in folders for above in folder.parents[:3] if folder in listed(above)
    }
    return {folder: named[folder] for folder in sorted(named) if not row_files(folder, CANDIDATES)}


def _listed(above: Path) -> Mapping[Path, PublishedFile]:
    """Give the folders that a manifest in ``above`` names; none where a file of that name is something else."""
    try:
        files = read_asset(above / MANIFEST).files if is_file(above / MANIFEST) else ()
    except RecordError as error:
        _log.warning("passed over: %s", error)
        files = ()
    return {(above / one.path).parent: one for one in files}


def absence(absent: Mapping[Path, PublishedFile]) -> str:
    """Say in one line whose candidates are not there, and which command brings them; empty where none is absent."""
    if not absent:
        return ""
    named = ", ".join(folder.name for folder in list(absent)[:_NAMED])
    more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
    tops = {folder.parents[one.path.count("/") - 1] for folder, one in absent.items()}
    commands = [
        FETCH if top == HOME.absolute() else f"{FETCH} --into {top}" for top in sorted(map(Path.absolute, tops))
    ]
    return (
        f"expected {CANDIDATES}, which holds what searches measured, beside the records of {named}{more}, found none: "
        f"these files are published apart ({sum(one.bytes for one in absent.values()):,} bytes); "
        f"`{'` and `'.join(commands)}` brings them"
    )


def fetch_published(into: Path, archive: Path | None, download: Download) -> tuple[list[PublishedFile], str]:
    """Bring the candidates that are missing below a folder of published records.

    Parameters
    ----------
    into : Path
        Folder with the manifest.
    archive : Path or None
        The release's archive, where it is on this machine. Without it, the archive is downloaded; where this fails,
        the files come from the commit that the manifest names, if ``into`` lies in a checkout with this commit.
    download : callable
        As `spmark.datasets.cache.Cache.fetch`.

    Returns
    -------
    fetched : list of PublishedFile
        Those that were missing.
    origin : str
        Where they are from; empty where none was missing.

    Raises
    ------
    DatasetError
        A file there is another one than the published, none of the places has the missing files, or a file cannot be
        written. Files that were brought before stay.
    RecordError
        ``into`` has no manifest, or it cannot be read.
    """
    asset = read_asset(into / MANIFEST)
    missing = [one for one in asset.files if not os.path.lexists(into / one.path)]
    for one in asset.files:
        if one not in missing and (found := _digest(into / one.path)) != one.sha256:
            raise DatasetError(
                f"{into / one.path}: expected sha256 {one.sha256}, found {found}; nothing was fetched: move what is "
                f"yours, or delete what is damaged, and run `{FETCH}` again"
            )
    by_hand = f"copy {asset.archive} from another machine and name it with `{FETCH} --from FILE`"
    refused, origin = f"{into / MANIFEST}: names no address of {asset.archive}", str(archive)
    if missing and archive is None and asset.url is not None:
        try:
            archive = download(asset.url, f"assets/{asset.tag}/{asset.archive}", asset.sha256, by_hand)
            origin = asset.url
        except DatasetError as error:
            refused = str(error)
            _log.warning("%s; looking into git's history", refused)
    with tempfile.TemporaryDirectory(prefix="spmark-") as folder:
        if missing and archive is None:
            archive, origin = Path(folder) / asset.archive, f"commit {asset.commit}"
            command = ["git", "-C", str(into), "archive", f"--output={archive}", str(asset.commit)]
            try:
                subprocess.run([*command, *(one.path for one in missing)], check=True, capture_output=True, text=True)
            except (OSError, subprocess.SubprocessError) as error:
                said = " ".join(str(getattr(error, "stderr", error)).split())
                raise DatasetError(
                    f"{refused}. Nor has the history of a checkout the files in {origin}: {said} (a shallow clone gets "
                    f"its history by `git fetch --unshallow`); {by_hand}"
                ) from error
        if missing and archive is not None:
            _unpack(archive, missing, into)
    return missing, origin if missing else ""


def _digest(path: Path) -> str:
    if not is_file(path):
        return "something else than a file"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(archive: Path, missing: Sequence[PublishedFile], into: Path) -> None:
    """Let files of an archive take their places, each whole and with the digest that the manifest states."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    files = pooch.create(into, base_url="", registry={one.path: one.sha256 for one in missing})
    what = f"a complete archive of the files of {into / MANIFEST}"
    with reading(archive, what, DatasetError, "copy it again"), tarfile.open(archive) as tar:
        for one in missing:

            def write(_url: str, place: str, _pooch: object, one: PublishedFile = one) -> None:
                content = tar.extractfile(one.path)
                Path(place).write_bytes(content.read(one.bytes) if content else b"")

            try:
                Path(files.fetch(one.path, downloader=write)).chmod(0o644)  # pooch lets its user alone read
            except OSError as error:
                raise DatasetError(
                    f"{into / one.path}: cannot be written ({error.strerror}); make room or get the right to write, "
                    f"and run `{FETCH}` again: it goes on with the files that are missing"
                ) from error
