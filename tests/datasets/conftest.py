"""The loopback file server, and a cache of its own for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from file_server import FileServer, serving

from spmark.datasets.cache import Cache


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as files:
        yield files


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")
