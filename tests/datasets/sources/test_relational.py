"""Matrices of several relations: files of the mirror, and twins."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmark.datasets.cache import Cache
from spmark.datasets.fetching import needed
from spmark.datasets.mirror import add_to_mirror
from spmark.datasets.relational import load_relational, of_relations
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.relational import Hetero, Listed, PointCloud
from spmark.datasets.sources.relational_twin import Typed
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.problem import Csr
from spmark.impls.formats.relational_hyb import RelationalHyb
from spmark.records.schema import MatrixKind, Orientation

LISTED = Listed(4, 3, 5, "https://example.org")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a file of a mirror and load it."""

    def loaded(source: type[Hetero | PointCloud], values: str = "seeded", **arrays: Any) -> Any:
        monkeypatch.setattr(source, "listed", {"small": LISTED})
        path = tmp_path / "mirror" / source.name / "small.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)
        spec = MatrixSpec(source=source.name, name="small", values=values)
        return load_relational(spec, Cache(tmp_path, tmp_path / "mirror"), 0)

    return loaded


def test_a_knowledge_graph(small: Any) -> None:
    edges = {"rel": [0, 0, 2, 2, 2], "dst": [1, 1, 3, 3, 0], "src": [0, 2, 1, 3, 3]}
    found = small(Hetero, "stored", **edges)
    assert (found.relations, found.num_rows, found.num_cols) == (3, 4, 4)
    assert sorted(zip(*(each.tolist() for each in found.edges), strict=True)) == sorted(
        zip(edges["rel"], edges["dst"], edges["src"], strict=True)
    )
    order, _ = found.by_relation
    np.testing.assert_array_equal(found.wide.values[order], np.float32([0.5, 0.5, 1, 0.5, 0.5]))
    seeded = small(Hetero, **edges)
    assert seeded.hash == found.hash
    assert (abs(seeded.wide.values) >= 0.5).all()


def test_a_map(small: Any) -> None:
    found = small(PointCloud, "stored", knnz=[1, 4, 0], out_map=[2, 0, 1, 2, 3], in_map=[1, 0, 1, 2, 3])
    assert np.bincount(found.edges[0]).tolist() == [1, 4]
    assert (found.wide.values == 1).all()
    with pytest.raises(DatasetError, match="expected each output once for an offset"):
        small(PointCloud, knnz=[2, 3, 0], out_map=[2, 2, 1, 2, 3], in_map=[1, 0, 1, 2, 3])


def test_damaged_files_are_refused(small: Any) -> None:
    with pytest.raises(MatrixError, match=r"expected edge types in \[0, 3\), found 3 at edge 4"):
        small(Hetero, rel=[0, 0, 2, 2, 3], dst=[1, 1, 3, 3, 0], src=[0, 2, 1, 3, 3])
    with pytest.raises(DatasetError, match="an npz file with edges of several relations"):
        small(Hetero, rel=[0])
    with pytest.raises(DatasetError, match=r"expected 4 x 12 with 5 non-zeros .* found 4 x 12 with 1 non-zeros"):
        small(Hetero, rel=[0], dst=[1], src=[0])


def test_what_is_no_matrix_of_several_relations_is_refused(cache: Cache) -> None:
    two = Csr.checked((1, 2), np.array([0, 1]), np.array([1]), np.ones(1, np.float32))
    with pytest.raises(DatasetError, match="ogb/ogbn-arxiv: expected the number of its relations, found none"):
        of_relations(MatrixSpec(source="ogb", name="ogbn-arxiv"), two)
    with pytest.raises(DatasetError, match="as it is stored, found its transpose"):
        of_relations(MatrixSpec(source="hetero", name="aifb", orientation=Orientation.TRANSPOSED), two)
    with pytest.raises(DatasetError, match=r"a folder with pointcloud/\w+.npz, found none; its data come from https"):
        load_relational(MatrixSpec(source="pointcloud", name=next(iter(PointCloud.listed))), cache, 0)


TRIPLES = b"""<http://a#X> <http://a#in> "a text of . <words>"@en .
_:n1 <http://a#of> <http://a#X> .
<http://a#X> <http://a#in> _:n1 .
<http://a#u> <http://a#of> <http://a#X> .
"""
"""Nodes 0 to 3 as they appear: X, the text, n1, u; relations in and of."""


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("graph.nt.gz", gzip.compress(TRIPLES, mtime=0)),
        ("train.txt", b"X\tin\tt\nn1\tof\tX\nX\tin\tn1\nu\tof\tX\n"),
        ("train2id.txt", b"4\n0 1 0\n2 0 1\n0 2 0\n3 0 1\n"),
    ],
    ids=["triples", "words", "numbers"],
)
def test_a_graph_is_downloaded_where_no_mirror_has_it(
    server: Any, cache: Cache, list_origin: Any, monkeypatch: pytest.MonkeyPatch, file: str, content: bytes
) -> None:
    server.files[f"/{file}"] = content
    list_origin("hetero/small", (4, 8, 4), server.url + file)
    monkeypatch.setattr(Hetero, "listed", {"small": Listed(4, 2, 4, "")})
    spec = MatrixSpec(source="hetero", name="small", values="stored")
    found = load_relational(spec, cache, 0)
    order, _ = found.by_relation
    assert [each[order].tolist() for each in found.edges] == [[0, 0, 1, 1], [1, 2, 0, 0], [0, 0, 2, 3]]
    assert found.wide.values[order].tolist() == [1, 1, 0.5, 0.5]
    mirror, wide = Cache(cache.root, cache.root / "mirror"), found.wide
    add_to_mirror(
        cache.root / "mirror",
        spec,
        RawMatrix(wide.shape, wide.indptr, wide.indices, wide.values, MatrixKind.REAL),
        "MIT",
        server.url,
    )
    server.files.clear()
    assert load_relational(spec, Cache(cache.root / "new", mirror.mirror), 0).hash == found.hash
    assert needed([spec], mirror) == {spec.id: "mirror"}


def test_a_graph_of_broken_lines(server: Any, cache: Cache, list_origin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hetero, "listed", {"small": Listed(4, 2, 4, "")})
    server.files["/train.txt"] = b"X in\n"
    list_origin("hetero/small", (4, 8, 4), server.url + "train.txt")
    with pytest.raises(DatasetError, match=r"train.txt: expected lines of a subject, a relation and an object"):
        load_relational(MatrixSpec(source="hetero", name="small"), cache, 0)


@pytest.mark.parametrize(
    ("name", "relations", "edges", "share"),
    [
        ("aifb", 45, 29043, 0.175),
        ("mutag", 23, 74227, 0.078),
        ("fb15k237", 237, 272115, 0.179),
        ("wn18rr", 11, 86835, 0.127),
    ],
)
def test_padding_of_the_mirrors_graphs(
    name: str, relations: int, edges: int, share: float, mirror: Path, tmp_path: Path
) -> None:
    """Table 2 of SparseTIR has 17.9 % of the stored elements for AIFB, and 8.0 % for another edition of MUTAG."""
    found = load_relational(MatrixSpec(source="hetero", name=name), Cache(tmp_path, mirror), 0)
    assert (found.relations, found.nnz) == (relations, edges)
    padding = RelationalHyb.of(found, 32).padding
    assert padding / (1 + padding) == pytest.approx(share, abs=0.0005)


@pytest.mark.parametrize("name", PointCloud.listed)
def test_the_mirrors_maps(name: str, mirror: Path, tmp_path: Path) -> None:
    found = load_relational(MatrixSpec(source="pointcloud", name=name), Cache(tmp_path, mirror), 0)
    centre = found.edges[0] == 13
    np.testing.assert_array_equal(found.edges[1][centre], found.edges[2][centre])
    assert np.count_nonzero(centre) == found.num_rows


SMALL = Typed((40, 60), {(0, 0): (3, 551), (0, 1): (1, 300)})


def test_a_twin_of_typed_nodes() -> None:
    relation, rows, cols = SMALL.draw(1)
    assert np.bincount(relation).tolist() == [301, 150, 100, 300]
    assert len(set(zip(relation.tolist(), rows.tolist(), cols.tolist(), strict=True))) == 851
    assert (rows[relation < 3] < 40).all() and (cols < 40).all() and (rows[relation == 3] >= 40).all()
    for r in range(3):
        mine = set(zip(rows[relation == r].tolist(), cols[relation == r].tolist(), strict=True))
        assert mine == {(col, row) for row, col in mine}
    busiest = [np.bincount(cols[relation == r], minlength=40).argmax() for r in range(4)]
    assert np.bincount(busiest).max() > 1, "a node with many edges has many in several relations"
    assert np.bincount(rows[relation == 3]).max() > 2 * 300 / 60
    again, other = SMALL.draw(1), SMALL.draw(2)
    assert all(map(np.array_equal, again, (relation, rows, cols))) and not np.array_equal(other[2], cols)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "relations", "nodes", "edges", "begins", "share"),
    [
        ("am", 96, 1_885_136, 5_657_934, "653aa55ee11ea17a", 0.0718),
        ("bgs", 96, 94_806, 670_542, "5efa68b0f7cfea46", 0.0844),
        ("biokg", 51, 93_773, 4_762_678, "4bc330c522439436", 0.1113),
    ],
)
def test_the_twins(
    name: str, relations: int, nodes: int, edges: int, begins: str, share: float, tmp_path: Path
) -> None:
    found = load_relational(MatrixSpec(source="relational_twin", name=name), Cache(tmp_path), 0)
    assert (found.relations, found.num_rows, found.nnz) == (relations, nodes, edges)
    assert found.hash.startswith(begins)
    padding = RelationalHyb.of(found, 32).padding
    assert padding / (1 + padding) == pytest.approx(share, abs=0.0005)
