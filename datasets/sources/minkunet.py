"""The maps of MinkUNet's sparse convolutions on scans of a street, each of its own level and with its own channels.

Choy, Gwak and Savarese, "4D Spatio-Temporal ConvNets: Minkowski Convolutional Neural Networks", CVPR 2019; widths as
in Tang, Liu, Zhao, Lin, Lin, Wang and Han, "Searching Efficient 3D Architectures with Sparse Point-Voxel Convolution"
(SPVNAS), ECCV 2020.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.readers.archive import FETCH_AGAIN
from spmark.datasets.source import Args, RawMatrix, argument, known, only
from spmark.datasets.sources.relational import RelationalSource, mirrored
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file
from spmark.impls.core.network import minkunet_convolutions
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.core.voxels import coarser, distinct_voxels, kernel_map, voxels_of_points
from spmark.records.schema import MatrixKind

VOXEL_M = 0.05
"""Edge of a voxel of level 0, in metres; each level doubles it."""
_LEVELS = 5
_COARSEST = 1 << _LEVELS - 1
"""Voxels of level 0 along an edge of one of the coarsest level."""
_POINT_FEATURES = 4
_VOXELS = "voxels"
"""Name of the voxels of a scan's level 0."""
DRAWN = "drawn"
"""Name of the scan that is drawn here."""


class Scan(NamedTuple):
    """A scan of KITTI's: ``pointcloud/<scan>.npz`` of a mirror has its points as ``xyz`` in metres, to a millimetre."""

    points: int
    url: str
    """Of KITTI's format: x, y, z and the intensity of each point as little-endian float32."""


_RAW = "https://raw.githubusercontent.com"
SCANS = {
    "semantickitti_spvnas_000000": Scan(123_389, f"{_RAW}/mit-han-lab/spvnas/master/assets/000000.bin"),
    "kitti_object_000000": Scan(
        115_384, f"{_RAW}/kuixu/kitti_object_vis/master/data/object/training/velodyne/000000.bin"
    ),
}


class Layer(NamedTuple):
    """A convolution of MinkUNet."""

    map: str
    """Its map: ``l0`` to ``l4`` within a level, ``down1`` to ``down4`` onto one, ``up1`` to ``up4`` back from it."""
    width_in: int
    width_out: int
    times: int
    """How often the network has it."""


LAYERS = tuple(Layer(*one, times) for one, times in Counter(minkunet_convolutions(_POINT_FEATURES)[1:]).items())
"""All layers with maps and at least 32 inputs, from the first to the last: the stem has 4 inputs, and shortcuts and the
classifier are dense products."""


class MinkUNet(RelationalSource):
    """Maps by scan and name, ``<scan>/<map>``: 27 relations within a level, 8 between two; stored values are 1.

    ``<scan>/voxels`` has a row for each voxel of level 0, whose stored values are its three coordinates, moved by
    multiples of what an edge of the coarsest level has, so that none is 0.

    The scan ``drawn`` is a stand-in that needs no mirror: a ground, boxes and two walls, seen by 64 beams. Its
    argument ``seed`` (0) draws another street.
    """

    name = "minkunet"
    title = "maps of MinkUNet's sparse convolutions"
    licence = "per scan, in the mirror's MANIFEST.tsv; drawn: none needed (generated)"
    citation = (
        "Choy, Gwak and Savarese, 4D spatio-temporal ConvNets, CVPR 2019; Behley et al., SemanticKITTI, ICCV 2019; "
        "Geiger et al., KITTI, CVPR 2012"
    )

    def names(self, cache: Cache) -> Sequence[str]:
        """List scans with each of their maps."""
        maps = dict.fromkeys(layer.map for layer in LAYERS)
        return tuple(f"{scan}/{which}" for scan in (DRAWN, *SCANS) for which in (*sorted(maps), _VOXELS))

    def relations(self, name: str, rows: int, cols: int) -> int:
        """Give the offsets of a map, 0 for voxels."""
        which = name.rpartition("/")[2]
        return 0 if which == _VOXELS else 27 if which.startswith("l") else 8

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Give the voxels of a scan, or build a map of its voxels at one level or between two."""
        scan, _, which = known(self.name, name, self.names(cache)).rpartition("/")
        where = f"{self.name}/{name}"
        only(where, args, *["seed"] * (scan == DRAWN))
        if scan == DRAWN:
            points, kind = drawn_scan(argument(where, args, "seed", 0, (0, 2**31 - 1))), MatrixKind.SYNTHETIC
        else:
            points, kind = self._points(name, cache), MatrixKind.REAL
        if which == _VOXELS:
            voxels, _ = distinct_voxels(voxels_of_points(points, VOXEL_M))
            values = (voxels - voxels.min(axis=0) // _COARSEST * _COARSEST + _COARSEST).astype(np.float32).ravel()
            rows = np.arange(0, values.size + 1, 3, dtype=np.int32)
            return RawMatrix(voxels.shape, rows, np.tile(np.arange(3, dtype=np.int32), len(voxels)), values, kind)
        wide = _map_of(points, which).wide
        return RawMatrix(wide.shape, wide.indptr, wide.indices, wide.values, kind)

    def mirrored_as(self, name: str) -> str:
        """Give the file of a scan."""
        scan, _, _ = name.rpartition("/")
        return f"pointcloud/{scan}.npz" if scan in SCANS else ""

    def download(self, name: str) -> tuple[str, str] | None:
        """Give the address of a scan, and its place in the cache."""
        scan, _, _ = name.rpartition("/")
        return (SCANS[scan].url, f"minkunet/{scan}.bin") if scan in SCANS else None

    def _points(self, name: str, cache: Cache) -> NDArray[np.float32]:
        """Read (n, 3) float32 points of a scan, in metres."""
        place, file = self.mirrored_as(name), self.download(name)
        assert file is not None
        if cache.mirror is not None and is_file(cache.mirror / place):
            with mirrored(cache, place, file[0], "an npz file with a scan, xyz in metres") as arrays:
                return np.asarray(arrays["xyz"], np.float32)
        path, expected = cache.fetch(*file), SCANS[name.rpartition("/")[0]].points
        if path.stat().st_size != 16 * expected:
            raise DatasetError(
                f"{path}: expected {expected:,} points of 16 bytes, found {path.stat().st_size:,} bytes; {FETCH_AGAIN}"
            )
        return np.round(np.fromfile(path, "<f4").reshape(-1, 4)[:, :3], 3).astype(np.float32)


def _map_of(points: NDArray[np.float32], which: str) -> RelationalCsr:
    """Give the map called ``l<level>``, ``down<level>`` or ``up<level>``."""
    level = int(which[-1])
    voxels, finer = distinct_voxels(voxels_of_points(points, VOXEL_M))[0], None
    for _ in range(level):
        voxels, finer = distinct_voxels(coarser(voxels))[0], voxels
    if which.startswith("l") or finer is None:
        return kernel_map(voxels, voxels)
    down = kernel_map(voxels, finer, 2, 2)
    return down.transposed() if which.startswith("up") else down


def drawn_scan(seed: int) -> NDArray[np.float32]:
    """Draw a street and scan it: the ground, boxes of the sizes of cars and houses, and a wall on either side.

    Parameters
    ----------
    seed : int

    Returns
    -------
    (n, 3) float32
        Points in metres around the scanner, to a millimetre: one for each of 64 beams and 2,048 directions that meets
        something within 80 m, with 2 cm of noise.
    """

    def uniform(low: float, high: float, *shape: int) -> NDArray[np.float64]:
        drawn = bits.random_raw(int(np.prod(shape))).reshape(shape)  # the same in every version of NumPy
        return np.asarray(low + (high - low) * (drawn >> np.uint64(11)) * 2.0**-53, np.float64)

    bits = np.random.PCG64([seed, 64])
    height, reach, count = 1.73, 80.0, 60
    elevation, azimuth = np.meshgrid(
        np.radians(np.linspace(2, -24.8, 64)), np.linspace(0, 2 * np.pi, 2048, endpoint=False), indexing="ij"
    )
    flat = np.cos(elevation)
    ray = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)], axis=-1).reshape(-1, 3)
    centres = np.concatenate([uniform(-50, 50, count, 1), uniform(-18, 18, count, 1)], axis=1)
    centres[:, 1] += np.sign(centres[:, 1]) * 3  # the street itself is free
    halves = uniform(0.3, 2.2, count, 2)
    tops = uniform(0.5, 3.5, count) - height
    walls = [(-60, 22 + side, 60, 23 + side, 8 - height) for side in (0, -45)]
    boxes = [
        *((x - a, y - b, x + a, y + b, top) for (x, y), (a, b), top in zip(centres, halves, tops, strict=True)),
        *walls,
    ]
    with np.errstate(divide="ignore"):
        step = 1 / ray
        distance = np.where(ray[:, 2] < 0, -height * step[:, 2], np.inf)
    for x0, y0, x1, y1, top in boxes:
        # A ray is in the box between the last plane where it enters one of three slabs and the first where it leaves.
        near, far = (np.array([x0, y0, -height]) * step, np.array([x1, y1, top]) * step)
        enters, leaves = np.minimum(near, far).max(axis=1), np.maximum(near, far).min(axis=1)
        hit = (enters > 0) & (enters <= leaves)
        distance[hit] = np.minimum(distance, enters)[hit]
    seen = distance < reach
    return np.round(ray[seen] * (distance[seen] + uniform(-0.02, 0.02, int(seen.sum())))[:, None], 3).astype(np.float32)
