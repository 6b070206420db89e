"""Voxels of point clouds, and the maps of sparse convolutions between them, with NumPy.

A map is a matrix of several relations (`spmark.impls.core.relational`): relation r is an offset of the convolution's
window, and has an edge from an input to an output where the input stands at the output times the stride plus the
offset. Graham, Engelcke and van der Maaten, "3D Semantic Segmentation with Submanifold Sparse Convolutional Networks",
CVPR 2018; Choy, Gwak and Savarese, "4D Spatio-Temporal ConvNets", CVPR 2019, section 3.

`spmark.impls.kernels.kernel_maps` gives the same arrays on a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import MatrixError
from spmark.impls.core.problem import MAX_NNZ, Csr
from spmark.impls.core.relational import RelationalCsr

LIMIT = 1 << 20
"""Coordinates of voxels lie between -LIMIT and LIMIT, so that the three of a voxel fit into one word."""
SIZES = (2, 3)
"""Voxels along an edge of a window: 8 or 27 offsets."""


def voxels_of_points(points: Any, size: float) -> Any:
    """Give the voxel that each point lies in.

    Parameters
    ----------
    points : (n, 3) float32
        A NumPy or CuPy array.
    size : float
        Edge of a voxel, in the unit of the points.

    Returns
    -------
    (n, 3) int32
        ``floor(points / size)``, divided in float32; an array of the same library.

    Raises
    ------
    MatrixError
        The points are of another shape or dtype, the size is not positive, or a point is not finite or too far away.
    """
    if points.ndim != 2 or points.shape[1] != 3 or points.shape[0] < 1 or points.dtype != np.float32:
        raise MatrixError(
            f"expected points as an (n, 3) array of float32, found {points.dtype} of shape {points.shape}"
        )
    if not size > 0:
        raise MatrixError(f"expected the edge of a voxel above 0, found {size}")
    with np.errstate(over="ignore"):
        found = np.floor(points / np.float32(size))
    near = abs(found) < LIMIT  # False of NaN
    if not near.all():
        at = int((~near).any(axis=1).argmax())
        raise MatrixError(
            f"expected finite points within {LIMIT:,} voxels of the origin, found {points[at].tolist()} at point {at} "
            f"with voxels of {size}"
        )
    return found.astype(np.int32)


def check_voxels(coordinates: Any, what: str = "voxels") -> None:
    """Refuse what is no contiguous (n, 3) int32 array, of NumPy or CuPy, of coordinates within the limit.

    Raises
    ------
    MatrixError
        Says what was found, and at which voxel.
    """
    whole = coordinates.flags.c_contiguous and coordinates.dtype == np.int32
    if not whole or coordinates.ndim != 2 or coordinates.shape[1] != 3 or coordinates.shape[0] < 1:
        order = "" if coordinates.flags.c_contiguous else ", not contiguous"
        found = f"{coordinates.dtype} of shape {coordinates.shape}{order}"
        raise MatrixError(f"expected coordinates of {what} as a contiguous (n, 3) array of int32, found {found}")
    near = (coordinates > -LIMIT) & (coordinates < LIMIT)
    if not near.all():
        at = int((~near).any(axis=1).argmax())
        found = f"{coordinates[at].tolist()} at number {at}"
        raise MatrixError(f"expected coordinates of {what} between -{LIMIT:,} and {LIMIT:,}, found {found}")


def repeated_voxel(what: str, coordinates: Any, first: int, again: int) -> MatrixError:
    """Give the error that names the first voxel that stands twice."""
    at = coordinates[again].tolist()
    return MatrixError(f"expected {what} that are all different, found {at} at numbers {first} and {again}")


def offsets_of(size: int, stride: int) -> NDArray[np.int32]:
    """Give the offsets of a window, (size^3, 3) int32 with the last coordinate fastest: from -1 to 1, or 0 and 1.

    Raises
    ------
    MatrixError
        There are no maps for the size or the stride.
    """
    if size not in SIZES or stride < 1:
        raise MatrixError(f"expected a window of {SIZES} voxels and a stride of at least 1, found {size} and {stride}")
    offsets = np.stack(np.meshgrid(*[np.arange(size, dtype=np.int32)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return offsets - np.int32(size // 3)


def distinct_voxels(coordinates: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give each voxel once, in the order in which they come first.

    Parameters
    ----------
    coordinates : (m, 3) int32

    Returns
    -------
    distinct : (n, 3) int32
    inverse : (m,) int32
        Number of each given voxel among the distinct ones. O(m log m).

    Raises
    ------
    MatrixError
        See `check_voxels`.
    """
    check_voxels(coordinates)
    _, first, inverse = np.unique(_keys(coordinates), return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(order.size, np.int32)
    number[order] = np.arange(order.size, dtype=np.int32)
    return coordinates[first[order]], number[inverse]


def coarser(coordinates: Any) -> Any:
    """Give the voxel of twice the size that each voxel lies in; distinct ones need not be distinct afterwards."""
    return coordinates >> 1


def kernel_map(outputs: NDArray[np.int32], inputs: NDArray[np.int32], size: int = 3, stride: int = 1) -> RelationalCsr:
    """Give the map of a sparse convolution.

    Parameters
    ----------
    outputs, inputs : (I, 3) and (K, 3) int32
        Voxels, each once; for a submanifold convolution the same.
    size, stride : int
        3 and 1 for a submanifold convolution, 2 and 2 for one onto the voxels of twice the size.

    Returns
    -------
    RelationalCsr
        I x K of size^3 relations, numbered as in `offsets_of`; all values are 1. O(size^3 (I + K) log K).

    Raises
    ------
    MatrixError
        A coordinate is illegal or stands twice, or columns times relations exceed int32.
    """
    offsets = offsets_of(size, stride)
    for what, coordinates in (("outputs", outputs), ("inputs", inputs)):
        check_voxels(coordinates, what)
        _check_distinct(what, coordinates)
    check_columns(len(inputs), len(offsets))
    keys = _keys(inputs)
    order = np.argsort(keys)
    keys = keys[order]
    columns = np.full((len(outputs), len(offsets)), -1, np.int64)
    for relation, offset in enumerate(offsets):
        wanted = outputs.astype(np.int64) * stride + offset
        near, wanted_keys = (abs(wanted) < LIMIT).all(axis=1), _keys(wanted)
        at = np.minimum(np.searchsorted(keys, wanted_keys), keys.size - 1)
        found = near & (keys[at] == wanted_keys)
        columns[found, relation] = relation * len(inputs) + order[at[found]]
    held = columns >= 0
    indptr = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int32)
    return map_of(len(inputs), len(offsets), indptr, columns[held].astype(np.int32))


def check_columns(inputs: int, relations: int) -> None:
    """Refuse more inputs than the columns of so many relations may number.

    Raises
    ------
    MatrixError
        Columns times relations exceed int32.
    """
    if inputs * relations > MAX_NNZ:
        raise MatrixError(f"expected at most {MAX_NNZ // relations:,} voxels of {relations} offsets, found {inputs:,}")


def map_of(inputs: int, relations: int, indptr: NDArray[np.int32], indices: NDArray[np.int32]) -> RelationalCsr:
    """Give a map by the canonical arrays of its wide CSR."""
    shape = (indptr.size - 1, inputs * relations)
    return RelationalCsr(Csr(shape, indptr, indices, np.ones(indices.size, np.float32)), relations)


def _keys(coordinates: NDArray[Any]) -> NDArray[np.int64]:
    places: NDArray[np.int64] = coordinates.astype(np.int64) + LIMIT
    return places[:, 0] << 42 | places[:, 1] << 21 | places[:, 2]


def _check_distinct(what: str, coordinates: NDArray[np.int32]) -> None:
    _, first, number = np.unique(_keys(coordinates), return_index=True, return_inverse=True)
    again = np.flatnonzero(first[number] != np.arange(number.size))
    if again.size:
        raise repeated_voxel(what, coordinates, int(first[number[again[0]]]), int(again[0]))
