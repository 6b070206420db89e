"""Voxels and maps of sparse convolutions on a target, by a hash table of coordinates.

The arrays are those of `spmark.impls.core.voxels`, bit for bit. Scans and selections are those of the target's own
array library.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.voxels import SIZES, check_columns, check_voxels, offsets_of, repeated_voxel
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import KernelTemplate

_THREADS = 128
_SOURCE = Path(__file__).parent / "kernel_maps.cu"
INSERT_VOXELS = KernelTemplate(_SOURCE, "insert_voxels", {"threads": (_THREADS,)})
COUNT_INPUTS = KernelTemplate(_SOURCE, "count_inputs", {"size": SIZES, "threads": (_THREADS,)})
WRITE_INPUTS = KernelTemplate(_SOURCE, "write_inputs", {"size": SIZES, "threads": (_THREADS,)})


class _Table(NamedTuple):
    """A hash table of voxels: 2^bits slots, and the slot of each voxel."""

    bits: np.int32
    keys: DeviceArray
    first: DeviceArray
    """The smallest number of each slot's voxel."""
    slots: DeviceArray


class KernelMaps:
    """Builds voxels and maps on a target.

    Parameters
    ----------
    target : Target

    Raises
    ------
    CompileError
        A kernel does not compile.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        by_size = [
            template.instance(size=size, threads=_THREADS)
            for size in SIZES
            for template in (COUNT_INPUTS, WRITE_INPUTS)
        ]
        self._insert, *found = target.load([INSERT_VOXELS.instance(threads=_THREADS), *by_size])
        self._by_size = dict(zip(SIZES, zip(found[::2], found[1::2], strict=True), strict=True))

    def distinct_voxels(self, coordinates: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """Give each voxel once, as `spmark.impls.core.voxels.distinct_voxels` does. Waits for the device."""
        check_voxels(coordinates)
        table, xp = self._table(coordinates), self._target.xp
        first = table.first[table.slots]
        opens = first == xp.arange(len(coordinates), dtype=np.int32)
        return coordinates[opens], (xp.cumsum(opens, dtype=np.int32) - np.int32(1))[first]

    def kernel_map(
        self, outputs: DeviceArray, inputs: DeviceArray, size: int = 3, stride: int = 1
    ) -> tuple[DeviceArray, DeviceArray]:
        """Give the map of a sparse convolution, as `spmark.impls.core.voxels.kernel_map` does. Waits for the device.

        Parameters
        ----------
        outputs, inputs : (I, 3) and (K, 3) int32
            Contiguous arrays of the target; the same array for a submanifold convolution.
        size, stride : int
            Of the window.

        Returns
        -------
        indptr : (I + 1,) int32
        indices : (nnz,) int32
            The wide CSR, for `spmark.impls.core.voxels.map_of`. O(size^3 I + K).

        Raises
        ------
        MatrixError
            As of the function on the host.
        """
        relations, xp = len(offsets_of(size, stride)), self._target.xp
        check_columns(len(inputs), relations)
        table = self._table_of_distinct("inputs", inputs)
        if outputs is not inputs:
            self._table_of_distinct("outputs", outputs)
        count, write = self._by_size[size]
        indptr = self._target.empty((len(outputs) + 1,), np.int32)
        indptr[:1] = 0
        grid = (ceil_div(len(outputs) * 32, _THREADS), 1, 1)
        sizes = np.int32(len(outputs)), np.int32(stride)
        counts = self._target.empty((len(outputs),), np.int32)
        count.launch(grid, (*sizes, table.bits, outputs, table.keys, table.first, counts))
        xp.cumsum(counts, dtype=np.int32, out=indptr[1:])
        indices = self._target.empty((int(indptr[-1]),), np.int32)
        args = sizes[0], np.int32(len(inputs)), *sizes[1:], table.bits, outputs, table.keys, table.first
        write.launch(grid, (*args, indptr[1:], indices))
        return indptr, indices

    def _table(self, coordinates: DeviceArray) -> _Table:
        bits = (2 * len(coordinates) - 1).bit_length()
        keys = self._target.empty((1 << bits,), np.uint64)
        keys.fill(np.uint64(2**64 - 1))
        first = self._target.empty((1 << bits,), np.int32)
        first.fill(np.int32(2**31 - 1))
        slots = self._target.empty((len(coordinates),), np.int32)
        table, number = _Table(np.int32(bits), keys, first, slots), np.int32(len(coordinates))
        self._insert.launch((ceil_div(len(coordinates), _THREADS), 1, 1), (number, table.bits, coordinates, *table[1:]))
        return table

    def _table_of_distinct(self, what: str, coordinates: DeviceArray) -> _Table:
        check_voxels(coordinates, what)
        table = self._table(coordinates)
        first = table.first[table.slots]
        again = first != self._target.xp.arange(len(coordinates), dtype=np.int32)
        if again.any():
            at = int(again.argmax())
            raise repeated_voxel(what, coordinates, int(first[at]), at)
        return table
