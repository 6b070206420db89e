"""``spmark fetch``: have every matrix of a sweep, or the candidates of published records, at hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.suite.cli.console import answer, console, say, table, working


def fetch_matrices(sweep_name: str, overrides: Sequence[str], as_json: bool) -> int:
    """Load every matrix of a sweep once; gives how many could not be loaded.

    Raises
    ------
    SweepError
        The sweep is invalid.
    """
    from spmark.datasets.loading_child import load_in_child

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
    from spmark.datasets.cache import Cache
    from spmark.report.candidates import HOME, fetch_published

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
