"""Candidates of published records, brought to their places: out of a file, from a release, or out of git's history.

The manifest says what goes where (`spmark.report.asset`). Each file is checked before it takes its place, and
takes it whole, so that a fetch that was stopped goes on with the files that are missing.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spmark.datasets.cache import Cache
from spmark.datasets.download import file_digest
from spmark.datasets.readers.archive import unpacked_files
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file, whole
from spmark.report.asset import FETCH, HOME, MANIFEST, CandidateAsset, PublishedFile, read_asset

_GIT_LIMIT_S = 300
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Brought:
    """What a fetch did."""

    there: int
    """Files that stood in their places, as the manifest has them."""
    fetched: Sequence[PublishedFile]
    origin: str
    """Where the others are from; empty where all were there."""


def fetch_published(into: Path, archive: Path | None = None, cache: Cache | None = None) -> Brought:
    """Bring the candidates that are missing below a folder of published records.

    Parameters
    ----------
    into : Path
        Folder with the manifest.
    archive : Path, optional
        The release's archive, where it is on this machine. Without it, the archive is downloaded; where this fails,
        the files come from the commit that the manifest names, if ``into`` lies in a checkout with this commit.
    cache : Cache, optional
        Keeps the download; the user's by default.

    Raises
    ------
    DatasetError
        ``into`` has no manifest, a file there is another one than the published, none of the places has the missing
        files, or a file cannot be written. Files that were brought before stay.
    RecordError
        The manifest cannot be read.
    """
    if not is_file(into / MANIFEST):
        raise DatasetError(
            f"{into}: expected published records with {MANIFEST}, found none; run the command at the top of a "
            f"checkout, or name its {HOME} with --into"
        )
    asset = read_asset(into / MANIFEST)
    missing = _missing(asset, into)
    there = len(asset.files) - len(missing)
    if not missing:
        return Brought(there, (), "")
    if archive is not None:
        if not is_file(archive):
            raise DatasetError(f"{archive}: expected the archive {asset.archive}, found no such file")
        _from_archive(archive, asset, missing, into)
        return Brought(there, tuple(missing.values()), str(archive))
    return Brought(there, tuple(missing.values()), _from_elsewhere(asset, missing, into, cache or Cache.default()))


def _missing(asset: CandidateAsset, into: Path) -> dict[str, PublishedFile]:
    missing, other = {}, []
    for one in asset.files:
        path = into / one.path
        if not os.path.lexists(path):
            missing[one.path] = one
        elif found := _difference(path, one):
            other.append(f"{path}: {found}")
    if other:
        raise DatasetError(
            f"{other[0]}{f', and {len(other) - 1} more files differ' if other[1:] else ''}; nothing was fetched: move "
            f"what is yours, or delete what is damaged, and run `{FETCH}` again"
        )
    return missing


def _difference(path: Path, one: PublishedFile) -> str:
    """Say how a file differs from the published one; empty where it does not."""
    if not is_file(path):
        return "expected a file, found something else"
    if (size := path.stat().st_size) != one.bytes:
        return f"expected {one.bytes:,} bytes, found {size:,}"
    if (digest := file_digest(path)) != one.sha256:
        return f"expected sha256 {one.sha256}, found {digest}"
    return ""


def _from_elsewhere(asset: CandidateAsset, missing: Mapping[str, PublishedFile], into: Path, cache: Cache) -> str:
    by_hand = f"copy {asset.archive} from another machine and name it with `{FETCH} --from FILE`"
    refused = f"{into / MANIFEST}: names no address of {asset.archive}"
    if asset.url is not None:
        try:
            path = cache.fetch(asset.url, f"assets/{asset.tag}/{asset.archive}", asset.sha256, by_hand)
        except DatasetError as error:
            refused = str(error)
            _log.warning("%s; looking into git's history", refused)
        else:
            _from_archive(path, asset, missing, into)
            return asset.url
    try:
        _from_history(asset, missing, into)
    except DatasetError as error:
        raise DatasetError(f"{refused}. Nor has git the files: {error}; {by_hand}") from error
    return f"commit {asset.commit}"


def _from_archive(path: Path, asset: CandidateAsset, missing: Mapping[str, PublishedFile], into: Path) -> None:
    left = dict(missing)
    for name, unpacked in unpacked_files(path, {one.path: one.bytes for one in asset.files}):
        if one := left.pop(name, None):
            _put(one, into, partial(shutil.copyfile, unpacked), str(path))
    if left:
        raise DatasetError(
            f"{path}: expected all {len(asset.files)} files of {into / MANIFEST}, found no {', '.join(left)}; "
            "it is cut off or another archive: copy it again"
        )


def _from_history(asset: CandidateAsset, missing: Mapping[str, PublishedFile], into: Path) -> None:
    if asset.commit is None:
        raise DatasetError(f"{into / MANIFEST}: names no commit")
    _git(into, "cat-file", "-e", f"{asset.commit}^{{commit}}")
    for one in missing.values():
        _put(one, into, partial(_write_blob, into, f"{asset.commit}:./{one.path}"), f"commit {asset.commit}")


def _write_blob(folder: Path, name: str, part: Path) -> None:
    _git(folder, "cat-file", "blob", name, into=part)


def _git(folder: Path, *words: str, into: Path | None = None) -> None:
    """Run git in a folder; its output goes to a file."""
    command = ["git", "-C", str(folder), *words]
    try:
        with open(into or os.devnull, "wb") as out:  # noqa: PTH123
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=False, timeout=_GIT_LIMIT_S)
    except FileNotFoundError as error:
        raise DatasetError("expected the program git, found none; install it") from error
    except subprocess.TimeoutExpired as error:
        raise DatasetError(
            f"{folder}: git {words[-1]} took more than {_GIT_LIMIT_S} s; run the command again"
        ) from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split()) or f"exit code {done.returncode}"
        raise DatasetError(
            f"{folder}: expected {words[-1]} in the history of a checkout, found: {said} (a shallow clone gets its "
            "history by `git fetch --unshallow`)"
        )


def _put(one: PublishedFile, into: Path, write: Callable[[Path], object], source: str) -> None:
    """Let a file take its place, if it is the published one."""
    target = into / one.path
    try:
        with whole(target) as part:
            write(part)
            if found := _difference(part, one):
                raise DatasetError(
                    f"{source}: {one.path}: {found}; the file is not used: get the archive anew, or another one"
                )
    except OSError as error:
        raise DatasetError(
            f"{target}: cannot be written ({error.strerror}); make room or get the right to write, and run "
            f"`{FETCH}` again: it goes on with the files that are missing"
        ) from error
