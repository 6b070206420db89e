"""What a report's folder already has of each sweep: pages, figures and tables that need not be made anew.

Drawing takes most of a report's time. ``made.json`` beside the pages has, for every sweep, the digest of all that its
pages show, and of each file that was written for it. A sweep keeps its files where both digests are still the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from spmark.impls.core.frozen import Frozen
from spmark.impls.core.plainjson import NoJsonError, parse_model
from spmark.report.analysis.kept import code, digest_of_texts
from spmark.report.tables.table import Chapter

if TYPE_CHECKING:
    from spmark.report.site.model import SweepPage

MADE = "made.json"
_HEX = r"^[0-9a-f]{64}$"
_log = logging.getLogger(__name__)


class MadeSweep(Frozen):
    """What was written for one sweep."""

    key: str = Field(pattern=_HEX)
    """Digest of all that its pages show."""
    chapters: tuple[Chapter, ...]
    """Pages that the sweep has."""
    sections: tuple[str, ...]
    """Each of its sections as Markdown."""
    charts: bool
    """Whether a page has an interactive chart."""
    files: dict[str, str]
    """Digest of each file, by its path inside the site."""


class MadeReport(Frozen):
    """The file ``made.json``."""

    schema_version: Literal[1] = 1
    sweeps: dict[str, MadeSweep]


@dataclass(frozen=True)
class ReportFolder:
    """The folder of a report before it is written."""

    out: Path
    sweeps: Mapping[str, MadeSweep]
    """What `read_made` gives."""
    candidates: Mapping[tuple[str, str], str]
    """Digest of what searches saw, by device and sweep, as `spmark.report.candidates.candidate_digests` has it."""


def all_anew(folder: ReportFolder | None) -> bool:
    """Whether every page is made, whatever the records are: no earlier report has left pages."""
    return not (folder and folder.sweeps)


def read_made(out: Path) -> Mapping[str, MadeSweep]:
    """Read what an earlier report wrote into ``out``; empty where nothing is known of it."""
    try:
        return parse_model(MadeReport, (out / MADE).read_bytes()).sweeps
    except OSError:
        return {}
    except (NoJsonError, ValidationError) as error:
        found = str(error).split("\n", 1)[0]
        _log.warning("%s: expected what spmark report writes, found %s; all pages are made anew", out / MADE, found)
        return {}


def write_made(out: Path, sweeps: Mapping[str, MadeSweep]) -> None:
    """Write what the folder has now; nothing where no sweep has a key.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    if not sweeps:
        return
    text = json.dumps(MadeReport(sweeps=dict(sweeps)).model_dump(mode="json"), indent=1)
    (out / MADE).write_text(f"{text}\n", encoding="utf-8")


def looked_up(page: SweepPage, parts: Sequence[str], folder: ReportFolder) -> SweepPage:
    """Give a page its key, and what the folder has of it where nothing has changed.

    Parameters
    ----------
    page : SweepPage
    parts : sequence of str
        All that its sections follow from, beside the code and the page itself.
    folder : ReportFolder
    """
    key = digest_of_texts([code(), repr(page), *parts])
    return replace(page, key=key, made=_unchanged(folder.sweeps.get(page.name), key, folder.out))


def _unchanged(made: MadeSweep | None, key: str, out: Path) -> MadeSweep | None:
    """Give what was made where its key is ``key`` and all of its files are as they were written; else None."""
    if made is None or made.key != key:
        return None
    try:
        whole = all(digest_of_bytes((out / name).read_bytes()) == digest for name, digest in made.files.items())
    except OSError:
        return None
    return made if whole else None


def digest_of_bytes(content: bytes) -> str:
    """Give the digest that `MadeSweep.files` has of a file."""
    return hashlib.sha256(content).hexdigest()
