"""Storage of A level by level, each compressed or uncompressed, in the order of the loops over A.

A level maps a position of the level above and a coordinate to a position of its own: Chou, Kjolstad and Amarasinghe,
"Format abstraction for sparse tensor algebra compilers", OOPSLA 2018, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr, offsets, openings
from spmark.impls.taco_cpu.space import SPLITS, Nest

MOST_BYTES = 1 << 28
"""Bytes that the positions of an uncompressed level may take; the bytes of A's CSR, where these are more."""
_POSITION_BYTES = 4
"""What a position of a level takes in the array below it, at least: an int32 bound or a float32 value."""


def store(matrix: Csr, nest: Nest, config: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> dict[str, NDArray[Any]]:
    """Store a matrix as a tree of levels.

    A position of the last level is a stored element. Where uncompressed levels have positions that A has no element
    for, the value is 0 and the entry is -1: padding is known by position, never by its value.

    Parameters
    ----------
    matrix : Csr
    nest : Nest
        Its levels in storage order, and those that are compressed.
    config : mapping
        Says the iterations of i0 and k0, as ``isplit`` and ``ksplit``.
    most_bytes : int
        Bytes that the positions of an uncompressed level may take; the bytes of the CSR, where these are more.

    Returns
    -------
    dict of str to array
        Of every compressed level, as in ``pos_k1``: ``pos``, int32, where positions ``pos[p]:pos[p + 1]`` lie below
        position p of the level above, and ``crd``, int32, the coordinate of each position, rising below one position of
        the level above. Then ``values``, (stored,) float32, and ``entries``, (stored,) int32, by position of the last
        level: the value of each element, and its position in A's CSR order or -1 for padding. O(nnz + stored);
        O(nnz log nnz) where a level of k stands above one of i.

    Raises
    ------
    BuildError
        An uncompressed level would take more; says how much.
    """
    coordinates, extents = dict[str, NDArray[np.int32]](), dict[str, int]()
    order, compressed, indices = nest.levels, nest.compressed, (matrix.rows_of_entries(), matrix.indices)
    for index, along, length in zip("ik", indices, matrix.shape, strict=True):
        split = config[SPLITS[index]]
        coordinates[f"{index}1"], coordinates[f"{index}0"] = np.divmod(along, np.int32(split))
        extents |= {f"{index}1": -(-length // split), f"{index}0": split}
    key = np.zeros(matrix.nnz, np.int64)
    for loop in order:
        key = key * extents[loop] + coordinates[loop]
    in_order = (key[1:] >= key[:-1]).all()
    entries = (np.arange(matrix.nnz) if in_order else np.argsort(key, kind="stable")).astype(np.int32)

    most_bytes, arrays = max(most_bytes, matrix.nbytes), dict[str, NDArray[Any]]()
    position, size = np.zeros(matrix.nnz, np.int64), 1
    for number, loop in enumerate(order, 1):
        coordinate, extent = coordinates[loop][entries], extents[loop]
        if loop in compressed:
            begins = openings(position) | openings(coordinate)
            bounds = offsets(np.bincount(position[begins], minlength=size), np.int32)
            arrays |= {f"pos_{loop}": bounds, f"crd_{loop}": coordinate[begins]}
            position, size = np.cumsum(begins) - 1, int(np.count_nonzero(begins))
        else:
            position, size = position * extent + coordinate, size * extent
            if size * _POSITION_BYTES > most_bytes:
                names = " ".join(level + ("c" if level in compressed else "u") for level in order[:number])
                raise BuildError(
                    f"levels {names} of a {matrix.num_rows} x {matrix.num_cols} matrix with {matrix.nnz:,} non-zeros: "
                    f"expected the uncompressed level {loop} to take at most {most_bytes:,} bytes, found "
                    f"{size * _POSITION_BYTES:,}: compress it"
                )
    values, stored_entries = np.zeros(size, np.float32), np.full(size, -1, np.int32)
    values[position], stored_entries[position] = matrix.values[entries], entries
    return {**arrays, "values": values, "entries": stored_entries}
