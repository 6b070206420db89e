"""The loopback file server, a cache of its own for every test, and the packages ogb and dgl."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer, serving

from spmark.datasets import origins
from spmark.datasets.cache import Cache
from spmark.datasets.origins import Origin
from spmark.datasets.source import Facts


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as files:
        yield files


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def list_origin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a matrix into the list of origins in the place of all others, or beside those that a test has put there."""
    lines: dict[str, Origin] = {}

    def put(id: str, counts: tuple[int, int, int], url: str, pattern: str = "", aliases: tuple[str, ...] = ()) -> None:
        lines[id] = Origin(id, aliases, Facts(*counts), pattern, "MIT", url)
        monkeypatch.setattr(origins, "origins", lambda: lines)
        monkeypatch.setattr(origins, "by_alias", lambda: {name: one for one in lines.values() for name in one.aliases})

    return put


@pytest.fixture
def ogb(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "outdated", None)  # else the import asks an index of packages
    return pytest.importorskip("ogb.io.read_graph_raw")


@pytest.fixture
def dgl_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("DGL_DOWNLOAD_DIR", str(tmp_path / "dgl"))
    monkeypatch.setenv("DGLBACKEND", "pytorch")
    return pytest.importorskip("dgl.data")
