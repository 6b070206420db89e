"""Published tables: from the mirror or the artifact, and only with the content that was published."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from spmark.datasets import published
from spmark.datasets.cache import Cache
from spmark.datasets.published import TABLES, read_table
from spmark.impls.core.errors import DatasetError

CSV = "name,value\na,1\n"
NAME = "liteform/output_2279_total"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(TABLES[NAME], sha256=hashlib.sha256(CSV.encode()).hexdigest(), url="http://127.0.0.1:9/none.csv")
    monkeypatch.setattr(published, "TABLES", {NAME: own})


@pytest.mark.parametrize("packed", [True, False])
def test_the_mirror_is_read_first(tables: None, tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "mirror" / "liteform"
    folder.mkdir(parents=True)
    if packed:
        with gzip.open(folder / "output_2279_total.csv.gz", "wt") as file:
            file.write(CSV)
    else:
        (folder / "output_2279_total.csv").write_text(CSV)
    assert read_table(NAME, Cache(tmp_path / "cache", tmp_path / "mirror")) == CSV


def test_other_content_is_refused(tables: None, tmp_path: Path) -> None:
    folder = tmp_path / "liteform"
    folder.mkdir()
    (folder / "output_2279_total.csv").write_text(CSV + "b,2\n")
    with pytest.raises(DatasetError, match="with sha256"):
        read_table(NAME, Cache(tmp_path / "cache", tmp_path))
    (folder / "output_2279_total.csv").unlink()
    (folder / "output_2279_total.csv.gz").write_bytes(gzip.compress(CSV.encode())[:-9])
    with pytest.raises(DatasetError, match="expected a complete archive"):
        read_table(NAME, Cache(tmp_path / "cache", tmp_path))


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"did you mean liteform/output_2279_total"):
        read_table("liteform/output_2279", Cache(tmp_path))


def test_the_mirror_has_the_published_tables(mirror: Path, tmp_path: Path) -> None:
    if not (mirror / "liteform").is_dir():
        pytest.skip("the mirror has no folder liteform")
    for name in TABLES:
        assert read_table(name, Cache(tmp_path, mirror)).count("\n") > 10_000
