"""Maps of MinkUNet: what each has to do with the next level, and on which scans."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmark.datasets.cache import Cache
from spmark.datasets.fetching import Download, needed
from spmark.datasets.relational import load_relational
from spmark.datasets.sources.minkunet import LAYERS, SCANS, MinkUNet, Scan, drawn_scan
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.core.voxels import coarser, distinct_voxels, kernel_map, voxels_of_points
from spmark.impls.formats.relational_rows import why_not_rows

SCAN = next(iter(SCANS))


@pytest.fixture
def maps(tmp_path: Path) -> Any:
    """Write a scan into a mirror, and give its maps by name."""
    points = np.random.default_rng(4).normal(0, 0.5, (900, 3)).astype(np.float32)
    (tmp_path / "pointcloud").mkdir()
    np.savez(tmp_path / "pointcloud" / f"{SCAN}.npz", xyz=points)

    def load(which: str) -> RelationalCsr:
        spec = MatrixSpec(source="minkunet", name=f"{SCAN}/{which}", values="stored")
        return load_relational(spec, Cache(tmp_path / "cache", tmp_path), 0)

    return points, load


def test_each_level_has_the_map_of_its_own_voxels(maps: Any) -> None:
    points, load = maps
    voxels = distinct_voxels(voxels_of_points(points, 0.05))[0]
    for level in range(5):
        assert load(f"l{level}").hash == kernel_map(voxels, voxels).hash
        voxels = distinct_voxels(coarser(voxels))[0]


@pytest.mark.parametrize("level", [1, 4])
def test_maps_between_levels(maps: Any, level: int) -> None:
    _, load = maps
    down, up = load(f"down{level}"), load(f"up{level}")
    assert (down.num_rows, down.num_cols) == (load(f"l{level}").num_rows, load(f"l{level - 1}").num_rows)
    assert sorted(down.edges[2]) == list(range(down.num_cols))
    for found, expected in zip(up.edges, (down.edges[0], down.edges[2], down.edges[1]), strict=True):
        np.testing.assert_array_equal(found, expected[np.argsort(down.edges[2])])
    assert why_not_rows(down) is why_not_rows(up) is None


def test_layers_follow_each_other() -> None:
    """The inputs of a layer are the outputs of the one before; after a transposed one, with a skip connection's."""
    for before, after in pairwise(LAYERS):
        joined = after.width_in - before.width_out
        assert joined == 0 or (before.map.startswith("up") and after.width_in > before.width_out)
    assert sum(layer.times for layer in LAYERS) == 1 + 4 * (1 + 4) + 4 * (1 + 4)


def test_the_drawn_scan_is_like_a_real_one(cache: Cache) -> None:
    points = drawn_scan(0)
    assert points.dtype == np.float32
    assert 100_000 < len(points) <= 64 * 2048
    assert np.abs(points).max() < 80.1
    assert -1.76 < points[:, 2].min() < -1.72
    assert not np.array_equal(points[:1000], drawn_scan(1)[:1000])
    found = load_relational(MatrixSpec(source="minkunet", name="drawn/l1"), cache, 0)
    assert 40_000 < found.num_rows < 70_000
    assert 4 < found.nnz / found.num_rows < 8  # the scans of the mirror have 4.5 and 7.5


def test_what_is_no_map_is_refused(maps: Any, cache: Cache) -> None:
    _, load = maps
    with pytest.raises(DatasetError, match="found 'semantickitti_spvnas_000000/up0'"):
        load("up0")
    seeded = MatrixSpec(source="minkunet", name=f"{SCAN}/l0", args={"seed": 1})
    with pytest.raises(DatasetError, match="seed"):
        load_relational(seeded, cache, 0)
    with pytest.raises(DatasetError, match="expected the number of its relations, found none"):
        load("voxels")
    assert len(MinkUNet().names(cache)) == 3 * 14


def test_a_scan_is_downloaded_where_no_mirror_has_it(
    maps: Any, server: Any, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, _ = maps
    content = np.c_[points, np.ones(len(points))].astype("<f4").tobytes()
    monkeypatch.setitem(SCANS, SCAN, Scan(len(points), server.url + "000000.bin"))
    server.files["/000000.bin"] = content
    spec = MatrixSpec(source="minkunet", name=f"{SCAN}/l1")
    (file,) = needed([spec], cache).values()
    assert file == Download(server.url + "000000.bin", f"minkunet/{SCAN}.bin")
    np.testing.assert_array_equal(MinkUNet()._points(spec.name, cache), np.round(points, 3))
    assert load_relational(spec, cache, 0).relations == 27
    assert list(needed([spec], Cache(cache.root, cache.root.parent)).values()) == ["mirror"]
    assert set(needed([spec.model_copy(update={"name": "drawn/l1"})], cache).values()) == {"here"}
    (cache.root / "downloads" / "minkunet" / f"{SCAN}.bin").unlink()
    server.files["/000000.bin"] = content[:-16]
    with pytest.raises(DatasetError):
        load_relational(spec, Cache(cache.root), 0)
    with pytest.raises(DatasetError, match=r"expected 900 points of 16 bytes, found 14,384 bytes"):
        load_relational(spec, Cache(cache.root / "other"), 0)


@pytest.mark.parametrize("scan", SCANS)
def test_the_mirrors_scans(scan: str, mirror: Path, tmp_path: Path) -> None:
    """The counts of voxels are those of the mirror's list, but for points on the face between two."""
    voxels = {"semantickitti_spvnas_000000": 94_444, "kitti_object_000000": 79_943}[scan]
    found = load_relational(MatrixSpec(source="minkunet", name=f"{scan}/down1"), Cache(tmp_path, mirror), 0)
    assert abs(found.num_cols - voxels) < 10
