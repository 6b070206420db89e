"""The index of the SuiteSparse collection: conditions, published lists and draws, on a sample in its format."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from spmark.datasets import collection, published
from spmark.datasets.cache import Cache
from spmark.datasets.collection import copy_index, drawn, listed_in, matching, read_index
from spmark.datasets.source import Facts
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.errors import DatasetError, SweepError

SAMPLE = """5
31-Oct-2023 18:12:37
HB,1138_bus,1138,1138,4054,1,0,0,1,1,1,power network problem,4054
HB,abb313,313,176,1557,1,1,0,0,0,0,least squares problem,1557
SNAP,ca-GrQc,5242,5242,28980,1,1,0,0,1,1,undirected graph,28980
DIMACS10,data,2851,2851,30186,1,1,0,0,1,1,undirected graph,30186
Newman,data,9,9,20,1,0,0,0,0.5,0.25,"directed, weighted graph",20
"""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    place = tmp_path / "m" / "suitesparse" / "ssstats.csv"
    place.parent.mkdir(parents=True)
    place.write_text(SAMPLE)
    (tmp_path / "m" / "MANIFEST.tsv").write_text("name\tcategory\tsource\tlicence\trows\tcols\tnnz\tnote\n")
    return Cache(tmp_path / "c", tmp_path / "m")


def names(lines) -> list[str]:
    return [f"{line['group']}/{line['name']}" for line in lines]


def test_the_index_has_its_date_and_every_line(cache: Cache) -> None:
    index = read_index(cache)
    assert index.date == "31-Oct-2023 18:12:37"
    assert len(index.lines) == 5
    assert index.lines[4]["kind"] == "directed, weighted graph"
    assert index.lines[4]["numerical_symmetry"] == 0.25


def test_the_index_is_fetched_once_and_kept(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "URL", server.url + "ssstats.csv")
    server.files["/ssstats.csv"] = SAMPLE.encode()
    for _ in range(2):
        assert len(read_index(Cache(tmp_path / "c")).lines) == 5
    assert server.requests == 1


def test_a_mirror_gets_the_index(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "URL", server.url + "ssstats.csv")
    server.files["/ssstats.csv"] = SAMPLE.encode()
    cache = Cache(tmp_path / "c")
    copy_index(cache, tmp_path / "m")
    assert not (tmp_path / "m").exists(), "the cache has none yet"
    read_index(cache)
    copy_index(cache, tmp_path / "m")
    assert len(read_index(Cache(tmp_path / "other", tmp_path / "m")).lines) == 5
    assert server.requests == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("rows>=2000 and nnz<5e7 and kind='graph'", ["SNAP/ca-GrQc", "DIMACS10/data"]),
        ("kind = 'graph'", ["SNAP/ca-GrQc", "DIMACS10/data", "Newman/data"]),
        ("kind != 'graph' and rows > 313", ["HB/1138_bus"]),
        ("rows != 9 and cols <= 176", ["HB/abb313"]),
        ("pattern_symmetry = 0.5", ["Newman/data"]),
        ("group = 'HB'", ["HB/1138_bus", "HB/abb313"]),
        ("kind = 'a and b'", []),
    ],
)
def test_conditions(cache: Cache, condition: str, expected: list[str]) -> None:
    assert names(matching(read_index(cache).lines, condition)) == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "expected comparisons joined by and"),
        ("rows", "expected comparisons joined by and"),
        ("rows >= 1 or rows < 2", "expected comparisons joined by and"),
        ("__import__('os')", "expected comparisons joined by and"),
        ("row >= 1", r"expected a column out of .*did you mean rows"),
        ("rows = 'many'", "expected rows to be compared with a number"),
        ("kind > 'graph'", "expected kind to be compared with = or != and a text"),
        ("kind = 3", "expected kind to be compared with = or != and a text"),
        ("rows > 1e", "expected numbers"),
    ],
)
def test_conditions_that_are_none(cache: Cache, condition: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        matching(read_index(cache).lines, condition)


@pytest.mark.parametrize(
    "text",
    ["", "x", SAMPLE.replace("5\n", "6\n", 1), SAMPLE.replace("9,9", "9,x"), SAMPLE.replace(",20\n", "\n")[:-40]],
)
def test_another_file_is_refused(cache: Cache, text: str) -> None:
    (cache.mirror / "suitesparse" / "ssstats.csv").write_text(text)
    with pytest.raises(DatasetError, match=r"ssstats\.csv"):
        read_index(cache)


def test_a_published_list_tells_matrices_of_one_name_apart(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name,num_rows,num_cols,nnz\ndata,2851,2851,30186\ndata,2851,2851,30186\nca-GrQc,5242,5242,1\nother,1,1,1\n"
    table = replace(next(iter(published.TABLES.values())), sha256=hashlib.sha256(text.encode()).hexdigest())
    monkeypatch.setattr(published, "TABLES", {table.name: table})
    path = cache.mirror / f"{table.name}.csv"
    path.parent.mkdir()
    path.write_text(text)
    assert names(listed_in(read_index(cache).lines, table.name, cache)) == ["SNAP/ca-GrQc", "DIMACS10/data"]


def test_draws_follow_from_the_seed(cache: Cache) -> None:
    lines = read_index(cache).lines
    assert names(drawn(lines, 5, 0)) == names(lines)
    draws = {tuple(names(drawn(lines, 2, seed))) for seed in range(20)}
    assert len(draws) > 4
    assert names(drawn(lines, 2, 3)) == names(drawn(lines, 2, 3))
    with pytest.raises(DatasetError, match="expected at least 6 matrices to draw from, found 5"):
        drawn(lines, 6, 0)


HEAD = "schema: 1\nname: mine\nops: [spmm]\nwidths: [8]\nimplementations: [scipy_cpu]\nmatrices:\n"


@pytest.fixture
def sweep(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPMARK_MIRROR", str(cache.mirror))

    def read(line: str) -> list[str]:
        (tmp_path / "s.yaml").write_text(HEAD + f"  - {line}\n")
        return [matrix.id for matrix in Sweep.load(tmp_path / "s.yaml").matrices]

    return read


def test_a_sweep_takes_a_condition_and_a_draw(sweep) -> None:
    line = "{ source: suitesparse, where: \"kind = 'graph' and rows > 1000\" }"
    assert sweep(line) == ["suitesparse/SNAP/ca-GrQc", "suitesparse/DIMACS10/data"]
    assert len(sweep('{ source: suitesparse, where: "rows > 1", draw: 3, seed: 2, orientation: AT }')) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{ source: snap, where: "rows > 1" }', "expected source: suitesparse"),
        ('{ source: suitesparse, where: "rows > 1", name: HB/x }', "without names"),
        ('{ source: suitesparse, where: "rows > 1", draw: many }', "whole numbers"),
        ('{ source: suitesparse, where: "rows > 99999" }', "to leave a matrix of the collection"),
        ('{ source: suitesparse, where: "rows" }', "matrices.0: 'rows': expected comparisons"),
        ("{ source: suitesparse, table: nothing }", "expected a table out of"),
        ("{ source: suitesparse, draw: 3, name: HB/x }", "draw: unknown key"),
    ],
)
def test_a_sweep_that_asks_for_something_else(sweep, line: str, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        sweep(line)


def test_counts_of_the_index_are_for_estimates_alone(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    source = find_source("suitesparse")
    monkeypatch.setenv("SPMARK_CACHE", str(cache.root))
    monkeypatch.setenv("SPMARK_MIRROR", str(cache.root))
    assert source.likely("HB/abb313") is None, "nothing is fetched"
    monkeypatch.setenv("SPMARK_MIRROR", str(cache.mirror))
    assert source.likely("HB/abb313") == Facts(313, 176, 1557)
    assert source.facts("HB/abb313") is None, "its entries may include zeros"
    assert source.likely("HB/none") is None
