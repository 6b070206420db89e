"""``spmark fetch``: have the matrices of a sweep, the candidates of published records, or models at hand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from spmark import impls
from spmark.datasets.cache import Cache, file_digest
from spmark.datasets.collection import copy_index
from spmark.datasets.fetching import Download, bring, needed, sizes
from spmark.datasets.load import LoadedMatrix
from spmark.datasets.loading_child import load_in_child
from spmark.datasets.mirror import MANIFEST, add_to_mirror, at_origin, read_manifest
from spmark.datasets.origins import find_origin
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import Sweep
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.errors import DatasetError, MatrixError, RecordError
from spmark.impls.core.files import cache_root, whole
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.records.schema import MatrixKind, MatrixSource
from spmark.report.candidates import HOME, fetch_published
from spmark.suite.cli.console import answer, console, say, table, working

PACKAGES = Path(*impls.__path__)


def list_downloads(sweep_name: str, overrides: Sequence[str], as_json: bool) -> None:
    """Print where each matrix of a sweep comes from, and how many bytes its download has; nothing is downloaded.

    Raises
    ------
    SweepError, DatasetError
        The sweep is invalid, or a matrix does not exist.
    """
    screen, sweep, cache = console(as_json), Sweep.load(sweep_name, overrides), Cache.default()
    found = needed(sweep.matrices, cache)
    with working(screen, "asking for sizes"):
        known = sizes((one for one in found.values() if isinstance(one, Download)), cache)
    rows: list[dict[str, Any]] = []
    seen: set[Download] = set()
    for matrix, one in found.items():
        if isinstance(one, str):
            rows.append({"matrix": matrix, "bytes": 0, "from": one})
            continue
        # Matrices of one archive need it once.
        size = 0 if one in seen else known[one]
        rows.append({"matrix": matrix, "bytes": size if isinstance(size, int) else None, "from": one.url})
        seen.add(one)
    if as_json:
        answer(rows)
        return
    screen.print(table("", rows, plain=True))
    told = [size for size in known.values() if isinstance(size, int)]
    say(screen, f"{len(known)} files to download, {sum(told):,} bytes in the {len(told)} whose size is known")
    for one, size in known.items():
        if isinstance(size, str):
            say(screen, escape(f"{one.url}: size not known: {size}"))


def fetch_matrices(sweep_name: str, overrides: Sequence[str], as_json: bool) -> int:
    """Download what a sweep needs, several files at a time, and load every matrix once; gives how many are not there.

    Raises
    ------
    SweepError
        The sweep is invalid.
    """
    screen, sweep = console(as_json), Sweep.load(sweep_name, overrides)
    rows: list[dict[str, Any]] = []
    for spec, loaded, seconds in loaded_matrices(screen, sweep.matrices, sweep.seed):
        row: dict[str, Any] = {"matrix": spec.id, "rows": None, "cols": None, "nnz": None, "kind": "failed"}
        if isinstance(loaded, LoadedMatrix):
            csr = loaded.csr
            row |= {"rows": csr.num_rows, "cols": csr.num_cols, "nnz": csr.nnz, "kind": str(loaded.kind)}
        rows.append(row | {"seconds": seconds, "why": loaded if isinstance(loaded, str) else ""})
    failed = {row["matrix"]: row["why"] for row in rows if row["why"]}
    if as_json:
        answer(rows)
    else:
        screen.print(table("", [{k: v for k, v in row.items() if k != "why"} for row in rows], plain=True))
    tell_failed(screen, failed)
    return len(failed)


def tell_failed(screen: Console, failed: Mapping[str, str]) -> None:
    """Say which matrices could not be had, and why."""
    if failed:
        say(screen, f"[red]{len(failed)} could not be had:[/red]")
    for matrix, why in failed.items():
        say(screen, f"[red]{escape(matrix)}[/red]: {escape(why)}")


def loaded_matrices(
    screen: Console, matrices: Sequence[MatrixSource], seed: int
) -> Iterator[tuple[MatrixSource, LoadedMatrix | str, float]]:
    """Download what matrices need, then give each with its seconds; a reason stands for one that cannot be had."""
    cache = Cache.default()
    wanted: dict[str, Download | str] = {}
    for spec in matrices:
        try:
            wanted |= needed([spec], cache)
        except DatasetError as error:
            wanted[spec.id] = str(error)
    files = dict.fromkeys(one for one in wanted.values() if isinstance(one, Download))
    left = len(files)

    def count(one: Download) -> None:
        nonlocal left
        left -= 1
        status.update(Text(f"{left} of {len(files)} files to download"))

    with working(screen, f"{left} of {len(files)} files to download") as status:
        failed = bring(files, cache, count)
    for spec in matrices:
        started, one = time.monotonic(), wanted[spec.id]
        try:
            if isinstance(one, Download) and one in failed:
                raise DatasetError(failed[one])
            with working(screen, spec.id):
                loaded: LoadedMatrix | str = load_in_child(spec, seed)
        except (DatasetError, MatrixError) as error:
            loaded = str(error)
        yield spec, loaded, round(time.monotonic() - started, 2)


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


def make_mirror(folder: Path, sweep_names: Sequence[str]) -> int:
    """Write the matrices of sweeps that are downloaded into a mirror; gives how many could not be had.

    Raises
    ------
    SweepError
        A sweep is invalid.
    DatasetError
        The folder holds something else than a mirror, or cannot be written.
    """
    screen, found = console(as_json=False), dict[str, MatrixSource]()
    for name in sweep_names or packaged_sweeps():
        for matrix in Sweep.load(name).matrices:
            origin = at_origin(matrix, None)
            plain = MatrixSource(source=origin.source, name=origin.name, args=origin.args)
            if find_source(plain.source).network:
                found[plain.id] = plain
    there = {entry.id for entry in read_manifest(folder, edges=True)} if (folder / MANIFEST).exists() else set()
    todo = [spec for spec in found.values() if spec.id not in there]
    failed = {}
    for spec, loaded, _ in loaded_matrices(screen, todo, 0):
        try:
            if isinstance(loaded, str):
                raise DatasetError(loaded)
            _add(folder, spec, loaded)
        except (DatasetError, MatrixError) as error:
            failed[spec.id] = str(error)
        except OSError as error:
            raise DatasetError(f"{folder}: cannot be written ({error.strerror}): make room") from error
    copy_index(Cache.default(), folder)
    say(screen, escape(f"{folder}: {len(found) - len(failed)} matrices, {len(todo) - len(failed)} of them new"))
    tell_failed(screen, failed)
    return len(failed)


def _add(folder: Path, spec: MatrixSource, loaded: LoadedMatrix) -> None:
    """Add a matrix to a mirror, with its own values where its source has some."""
    values = None
    if loaded.source_kind is MatrixKind.REAL:
        values = load_in_child(spec.model_copy(update={"values": "stored"}), 0).csr.values
    csr, origin = loaded.csr, find_origin(spec.source, spec.name)
    raw = RawMatrix(csr.shape, csr.indptr, csr.indices, values, loaded.source_kind)
    source = find_source(spec.source)
    licence, url = (origin.licence, origin.url) if origin else (source.licence, source.url)
    add_to_mirror(folder, spec, raw, licence, url)
