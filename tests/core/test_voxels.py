"""Voxels and maps against dictionaries, with NumPy and with the kernels of a target."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from spmark.impls.core.errors import MatrixError
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.core.voxels import LIMIT, coarser, distinct_voxels, kernel_map, map_of, offsets_of, voxels_of_points
from spmark.impls.kernels.kernel_maps import KernelMaps
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.suite.conformance import HOST_ORDERS

WINDOWS = [(3, 1), (2, 2), (3, 2)]


class OnHost:
    """The functions of NumPy."""

    distinct_voxels, kernel_map = staticmethod(distinct_voxels), staticmethod(kernel_map)


class OnTarget:
    """The kernels, with arrays as NumPy has them."""

    def __init__(self, kind: str) -> None:
        self.target = open_target(find(kind))
        self.maps = KernelMaps(self.target)

    def distinct_voxels(self, coordinates: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        found = self.maps.distinct_voxels(self.target.upload(coordinates))
        return tuple(map(self.target.download, found))

    def kernel_map(self, outputs: NDArray[Any], inputs: NDArray[Any], size: int, stride: int) -> RelationalCsr:
        given = self.target.upload(inputs)
        put = given if outputs is inputs else self.target.upload(outputs)
        indptr, indices = map(self.target.download, self.maps.kernel_map(put, given, size, stride))
        return map_of(len(inputs), size**3, indptr, indices)


@pytest.fixture(
    scope="module",
    params=["numpy", "host-simt", pytest.param("cuda", marks=pytest.mark.gpu)],
)
def maps(request: pytest.FixtureRequest) -> Any:
    return OnHost if request.param == "numpy" else OnTarget(request.param)


def cloud(count: int, seed: int, edge: int = 9) -> NDArray[np.int32]:
    """Draw voxels, most of them several times, around the origin."""
    return np.random.default_rng(seed).integers(-edge, edge, (count, 3)).astype(np.int32)


def test_voxels_of_points() -> None:
    points = np.array([[0, 0.049, -0.001], [1.26, -1.26, 51]], np.float32)
    np.testing.assert_array_equal(voxels_of_points(points, 0.05), [[0, 0, -1], [25, -26, 1020]])


@pytest.mark.parametrize(
    ("points", "size", "found"),
    [
        (np.zeros((4, 2), np.float32), 1, r"float32 of shape \(4, 2\)"),
        (np.zeros((4, 3)), 1, "float64"),
        (np.zeros((0, 3), np.float32), 1, r"shape \(0, 3\)"),
        (np.zeros((4, 3), np.float32), 0.0, "above 0, found 0"),
        (np.float32([[0, 0, 0], [1, np.nan, 0]]), 1, "nan.* at point 1"),
        (np.float32([[0, 0, LIMIT]]), 1, "at point 0 with voxels of 1"),
    ],
)
def test_points_that_have_no_voxel_are_refused(points: NDArray[Any], size: float, found: str) -> None:
    with pytest.raises(MatrixError, match=found):
        voxels_of_points(points, size)


@pytest.mark.parametrize("count", [1, 40, 3000])
def test_distinct_voxels(maps: Any, count: int) -> None:
    coordinates = cloud(count, count)
    number: dict[tuple[int, ...], int] = {}
    expected = [number.setdefault(tuple(voxel), len(number)) for voxel in coordinates.tolist()]
    distinct, inverse = maps.distinct_voxels(coordinates)
    assert distinct.dtype == inverse.dtype == np.int32
    assert list(map(tuple, distinct.tolist())) == list(number)
    assert inverse.tolist() == expected


def test_whoever_comes_first_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinates, target = cloud(600, 2, edge=4), OnTarget("host-simt")
    expected = distinct_voxels(coordinates)
    for order in HOST_ORDERS:
        monkeypatch.setenv("SPMARK_HOST_ORDER", order)
        for found, wanted in zip(target.distinct_voxels(coordinates), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("size", "stride"), WINDOWS)
@pytest.mark.parametrize("count", [1, 700])
def test_kernel_map(maps: Any, count: int, size: int, stride: int) -> None:
    inputs = distinct_voxels(cloud(count, 5))[0]
    outputs = inputs if stride == 1 else distinct_voxels(coarser(inputs))[0]
    place = {tuple(voxel): k for k, voxel in enumerate(inputs.tolist())}
    low = -(size // 3)
    expected = []
    for i, output in enumerate(outputs.tolist()):
        for r, offset in enumerate(product(range(low, low + size), repeat=3)):
            at = tuple(x * stride + o for x, o in zip(output, offset, strict=True))
            expected += [(i, r, place[at])] if at in place else []
    found = maps.kernel_map(outputs, inputs, size, stride)
    assert found.wide.indptr.dtype == found.wide.indices.dtype == np.int32
    relation, rows, cols = found.edges
    assert list(zip(rows.tolist(), relation.tolist(), cols.tolist(), strict=True)) == expected
    assert found.wide.shape == (len(outputs), size**3 * len(inputs))
    assert (found.wide.values == 1).all()
    RelationalCsr.checked(found.wide, found.relations)


def test_each_voxel_is_once_in_a_strided_map() -> None:
    fine = distinct_voxels(cloud(500, 8))[0]
    coarse, inverse = distinct_voxels(coarser(fine))
    _, rows, cols = kernel_map(coarse, fine, 2, 2).edges
    np.testing.assert_array_equal(rows[np.argsort(cols)], inverse)


def test_voxels_at_the_limit_are_nobodys_neighbours(maps: Any) -> None:
    end = LIMIT - 1
    voxels = np.array([[0, 0, end], [0, 1, -end], [end, end, end], [-end, -end, -end]], np.int32)
    assert maps.kernel_map(voxels, voxels, 3, 1).edges[0].tolist() == [13] * 4
    # 2 (0, 0, end) has the sum of parts of (0, 1, -2).
    assert maps.kernel_map(voxels[:1], np.array([[0, 1, -2]], np.int32), 3, 2).nnz == 0


@pytest.mark.parametrize("which", ["outputs", "inputs"])
def test_repeated_voxels_are_refused(maps: Any, which: str) -> None:
    voxels = {name: distinct_voxels(cloud(50, 3))[0] for name in ("outputs", "inputs")}
    twice = voxels[which].copy()
    twice[[30, 40]] = twice[[7, 9]]
    expected = rf"{which} that are all different, found \[{', '.join(map(str, twice[7]))}\] at numbers 7 and 30"
    with pytest.raises(MatrixError, match=expected):
        maps.kernel_map(**voxels | {which: twice}, size=3, stride=1)


def test_illegal_voxels_and_windows_are_refused(maps: Any) -> None:
    good = cloud(1, 0)
    with pytest.raises(MatrixError, match=r"window of .* found 4 and 1"):
        maps.kernel_map(good, good, 4, 1)
    with pytest.raises(MatrixError, match="found 3 and 0"):
        maps.kernel_map(good, good, 3, 0)
    far = np.array([[0, 0, 0], [0, -LIMIT, 0]], np.int32)
    with pytest.raises(MatrixError, match=rf"inputs between .* found \[0, -{LIMIT}, 0\] at number 1"):
        maps.kernel_map(good, far, 3, 1)
    with pytest.raises(MatrixError, match="found int64 of shape"):
        maps.distinct_voxels(good.astype(np.int64))
    with pytest.raises(MatrixError, match="not contiguous"):
        distinct_voxels(cloud(9, 0)[::2])


def test_offsets_are_in_order() -> None:
    np.testing.assert_array_equal(offsets_of(3, 1)[[0, 13, 14, 26]], [[-1, -1, -1], [0, 0, 0], [0, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(offsets_of(2, 2)[[0, 1, 7]], [[0, 0, 0], [0, 0, 1], [1, 1, 1]])
