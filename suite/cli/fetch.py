"""``spmark fetch``: have the matrices of a sweep, the candidates of published records, or models at hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from rich.markup import escape

from spmark import impls
from spmark.datasets.cache import Cache, file_digest
from spmark.datasets.loading_child import load_in_child
from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.errors import DatasetError, MatrixError, RecordError
from spmark.impls.core.files import cache_root, whole
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.guard import reading
from spmark.impls.core.plainjson import parse_model
from spmark.report.candidates import HOME, fetch_published
from spmark.suite.cli.console import answer, console, say, table, working

PACKAGES = Path(*impls.__path__)


def fetch_matrices(sweep_name: str, overrides: Sequence[str], as_json: bool) -> int:
    """Load every matrix of a sweep once; gives how many could not be loaded.

    Raises
    ------
    SweepError
        The sweep is invalid.
    """
    screen, sweep = console(as_json), Sweep.load(sweep_name, overrides)
    rows: list[dict[str, Any]] = []
    failures = 0
    for spec in sweep.matrices:
        started = time.monotonic()
        row: dict[str, Any] = {"matrix": spec.id, "rows": None, "cols": None, "nnz": None, "kind": "", "seconds": 0.0}
        try:
            with working(screen, spec.id):
                loaded = load_in_child(spec, sweep.seed)
            row |= {"rows": loaded.csr.num_rows, "cols": loaded.csr.num_cols, "nnz": loaded.csr.nnz}
            row["kind"] = str(loaded.kind)
        except (DatasetError, MatrixError) as error:
            failures += 1
            row["kind"] = "failed"
            say(screen, f"[red]{escape(spec.id)}[/red]: {escape(str(error))}")
        rows.append(row | {"seconds": round(time.monotonic() - started, 2)})
    if as_json:
        answer(rows)
    else:
        screen.print(table("", rows, plain=True))
    return failures


def fetch_candidates(into: Path | None, archive: Path | None, as_json: bool) -> None:
    """Bring what searches of the published records measured to its place; ``into`` is where a checkout has them.

    Raises
    ------
    DatasetError
        The folder has no manifest, holds another file than the published one, or the files cannot be had.
    RecordError
        The manifest cannot be read.
    """
    folder = HOME if into is None else into
    screen = console(as_json)
    with working(screen, "candidates"):
        fetched, origin = fetch_published(folder, archive, Cache.default().fetch)
    if as_json:
        files = [{"path": one.path, "bytes": one.bytes} for one in fetched]
        answer({"into": str(folder), "fetched": files, "from": origin})
    elif fetched:
        size = sum(one.bytes for one in fetched)
        say(screen, escape(f"{folder}: fetched {len(fetched)} files ({size:,} bytes) from {origin}"))
    else:
        say(screen, escape(f"{folder}: all files are there"))


class PublishedModels(Frozen):
    """What an implementation's ``models/published.json`` says of models that are too large to be installed with it."""

    schema_version: Literal[1] = 1
    url: str | None = Field(pattern=r"^https?://[!-~]{1,500}$")
    """Address of the folder of models; None where the project has no public address yet."""
    sha256: dict[Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,80}[.]safetensors$")], str]
    """Digests of the files by name."""


def fetch_models(source: Path | None, as_json: bool, packages: Path = PACKAGES) -> None:
    """Bring the published models that are not installed into the cache, where their implementations look for them.

    Parameters
    ----------
    source : Path, optional
        Folder that has the models, such as that of a checkout; by default they are downloaded.
    as_json : bool
    packages : Path
        Folder of the implementations.

    Raises
    ------
    DatasetError
        A model cannot be had, or is another one than the published.
    RecordError
        A manifest cannot be read.
    """
    screen = console(as_json)
    fetched: list[Path] = []
    for manifest in sorted(packages.glob("*/models/published.json")):
        with reading(manifest, "a manifest of published models", RecordError, "install spmark again"):
            published = parse_model(PublishedModels, manifest.read_bytes())
        own, into = manifest.parent, cache_root() / "models" / manifest.parents[1].name / "published"
        by_hand = (
            f"`spmark fetch models --from FOLDER` takes them from {own.relative_to(packages.parent)} of a checkout"
        )
        for name, digest in published.sha256.items():
            if (own / name).is_file() or _sha256(into / name) == digest:
                continue
            if source is None and published.url is None:
                raise DatasetError(f"{manifest}: names no address of {name}: {by_hand}")
            place = f"models/{manifest.parents[1].name}/{name}"
            path = source / name if source else Cache.default().fetch(f"{published.url}/{name}", place, digest, by_hand)
            if (found := _sha256(path)) != digest:
                raise DatasetError(f"{path}: expected sha256 {digest}, found {found or 'no such file'}: {by_hand}")
            try:
                with whole(into / name) as part:
                    part.write_bytes(path.read_bytes())
            except OSError as error:
                raise DatasetError(f"{into / name}: cannot be written ({error.strerror}): make room") from error
            fetched.append(into / name)
    if as_json:
        answer({"fetched": [str(path) for path in fetched]})
    else:
        say(screen, escape("\n".join(map(str, fetched)) or "all models are there"))


def _sha256(path: Path) -> str:
    """Give the digest of a file; empty where there is none."""
    return file_digest(path) if path.is_file() else ""
