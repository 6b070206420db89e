"""Matrices of several relations: files of the mirror, and the stand-in for AM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmark.datasets.cache import Cache
from spmark.datasets.relational import load_relational
from spmark.datasets.sources.relational import Hetero, Listed, PointCloud
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.formats.relational_hyb import RelationalHyb
from spmark.records.schema import Orientation

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
    with pytest.raises(DatasetError, match="rmat/x: expected the number of its relations, found none"):
        load_relational(MatrixSpec(source="rmat", name="x"), cache, 0)
    with pytest.raises(DatasetError, match="as it is stored, found its transpose"):
        load_relational(MatrixSpec(source="rmat", name="x", relations=2, orientation=Orientation.TRANSPOSED), cache, 0)
    with pytest.raises(DatasetError, match=r"a folder with hetero/aifb.npz, found none; its edges come from https"):
        load_relational(MatrixSpec(source="hetero", name="aifb"), cache, 0)


@pytest.mark.parametrize(
    ("name", "relations", "edges", "padding"),
    [
        ("aifb", 45, 29043, 0.180),
        ("mutag", 23, 74227, 0.068),
        ("fb15k237", 237, 272115, 0.169),
        ("wn18rr", 11, 86835, 0.120),
    ],
)
def test_padding_of_the_mirrors_graphs(
    name: str, relations: int, edges: int, padding: float, mirror: Path, tmp_path: Path
) -> None:
    """Table 2 of SparseTIR has 17.9 % for AIFB, and 8.0 % for another edition of MUTAG."""
    found = load_relational(MatrixSpec(source="hetero", name=name), Cache(tmp_path, mirror), 0)
    assert (found.relations, found.nnz) == (relations, edges)
    assert RelationalHyb.of(found, 32).padding == pytest.approx(padding, abs=0.0005)


@pytest.mark.parametrize("name", PointCloud.listed)
def test_the_mirrors_maps(name: str, mirror: Path, tmp_path: Path) -> None:
    found = load_relational(MatrixSpec(source="pointcloud", name=name), Cache(tmp_path, mirror), 0)
    centre = found.edges[0] == 13
    np.testing.assert_array_equal(found.edges[1][centre], found.edges[2][centre])
    assert np.count_nonzero(centre) == found.num_rows


@pytest.mark.full
def test_the_stand_in_for_am(tmp_path: Path) -> None:
    found = load_relational(MatrixSpec(source="relational_twin", name="am"), Cache(tmp_path), 0)
    assert (found.relations, found.num_rows, found.nnz) == (96, 1_885_136, 5_657_934)
    assert found.hash.startswith("653aa55ee11ea17a")
    assert RelationalHyb.of(found, 32).padding == pytest.approx(0.056, abs=0.0005)
