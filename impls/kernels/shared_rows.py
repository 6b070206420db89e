"""The launches before and after a grid for rows of C that several pieces share, and for rows without any piece.

In float32 shared rows are cleared in C, and pieces are added into C. In 16 bits pieces are added up in a float32
workspace, which one launch after the grid rounds to C. The same launch clears the workspace for the next run, so that
none goes before the grid. A workspace that no cache holds is cleared before the grid instead: to clear it where it is
read made products of matrices with a million shared rows 1.04 to 1.28 times as long on an H200.

A launch that clears is enqueued before the compute grid on the same stream, which keeps their order. To clear inside
the grid would race with the first additions; to clear all of C would write rows that the grid writes anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.formats.row_use import RowUse
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Grid, Kernel, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, NARROW, Instance, KernelTemplate, widest_aligned

_SOURCE = Path(__file__).parent / "shared_rows.cu"
_THREADS = 64
_MAX_BLOCKS = 4096
_CACHED_BYTES = 1 << 25
"""Of a workspace that the L2 cache holds."""
ZERO_ROWS = KernelTemplate(_SOURCE, "zero_rows", {"T": ELEMENTS, "vector": (1, 2, 4, 8), "threads": (_THREADS,)})
ROUND_SHARED_ROWS = KernelTemplate(
    _SOURCE, "round_shared_rows", {"T": NARROW, "vector": (1, 2, 4, 8), "threads": (_THREADS,)}
)


def zeroing_instance(width: int, dtype: DType, most: int = 8) -> Instance:
    """Give the kernel that clears rows of J elements, by stores of at most ``most`` elements and 16 bytes."""
    vector = min(most, widest_aligned(width, dtype))
    return ZERO_ROWS.instance(T=C_TYPES[dtype], vector=vector, threads=_THREADS)


class RowZeroing:
    """A launch that clears some rows of the result.

    Parameters
    ----------
    plan : DevicePlan
        Owner of the uploaded list; the plan's `enqueue` calls this one first.
    rows : (n,) int32
        Distinct rows to clear; where there are none, nothing is launched.
    width : int
        Columns of the matrix to clear.
    kernel : Kernel
        The loaded `zeroing_instance` for the element type: the result's, or float32 for a workspace.
    """

    def __init__(self, plan: DevicePlan, rows: NDArray[np.int32], width: int, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rows: Any = plan.upload(rows.astype(np.int32, copy=False))
        self._sizes, self._grid = _shape(rows.size, width, kernel)

    def enqueue(self, out: DeviceArray) -> None:
        """Clear the rows of ``out``."""
        self._kernel.launch(self._grid, (*self._sizes, self._rows, out))


def _shape(rows: int, width: int, kernel: Kernel) -> tuple[tuple[np.int32, ...], Grid]:
    """Give sizes and grid. Narrow rows take few threads each, so that millions of them are not a block's turn each."""
    lanes = min(_THREADS, 1 << (ceil_div(width, int(kernel.instance.values["vector"])) - 1).bit_length())
    sizes = np.int32(rows), np.int32(width), np.int32(lanes)
    return sizes, (min(ceil_div(int(rows), _THREADS // lanes), _MAX_BLOCKS), 1, 1)


def shared_instances(shared: bool, width: int, dtype: DType, vector: int) -> list[Instance]:
    """Give the kernels of `SharedRows`, which a plan loads with its own: all are compiled side by side.

    Parameters
    ----------
    shared : bool
        Whether pieces share any row.
    width, dtype, vector
        As of `SharedRows`.
    """
    clearing = [zeroing_instance(width, dtype, vector)]  # the result is aligned as the plan's own loads are
    if not dtype.narrow or not shared:
        return clearing
    rounding = ROUND_SHARED_ROWS.instance(T=C_TYPES[dtype], vector=vector, threads=_THREADS)
    return [*clearing, zeroing_instance(width, DType.FLOAT32), rounding]


class SharedRows:
    """The launches around a grid whose pieces share rows.

    Parameters
    ----------
    plan : DevicePlan
        Owner of the uploaded arrays and of the workspace; the plan calls `before` and `after` around its grid.
    use : RowUse
    width : int
        J.
    dtype : DType
        Of C.
    kernels : sequence of Kernel
        The loaded `shared_instances`. Their ``vector`` divides J: rounding stores so many elements of C at once.

    Attributes
    ----------
    sums : device array
        The kernels' workspace, float32: in 16 bits a row for each of ``use.shared``, else one row that stays unused.
    numbered : bool
        Whether targets of shared rows count the workspace's rows (see `RowUse.targets`).
    clears : bool
        Whether `before` launches anything.
    """

    def __init__(self, plan: DevicePlan, use: RowUse, width: int, dtype: DType, kernels: Sequence[Kernel]) -> None:
        self.numbered = dtype.narrow
        self._rounded = self.numbered and use.shared.size > 0
        shape = use.shared.size if self._rounded else 1, width
        stays_clear = 4 * shape[0] * width <= _CACHED_BYTES
        self.sums: Any = plan.counters(shape, np.float32) if stays_clear else plan.workspace(shape, np.float32)
        listed = np.concatenate([use.shared, use.empty])
        cleared = listed[:0] if self._rounded else np.sort(listed)
        self._cleared, self._cleared_sums = RowZeroing(plan, cleared, width, kernels[0]), None
        if self._rounded:
            _, clearing, self._round = kernels
            if not stays_clear:
                every = np.arange(use.shared.size, dtype=np.int32)
                self._cleared_sums = RowZeroing(plan, every, width, clearing)
            self._sizes, self._grid = _shape(listed.size, width, self._round)
            self._args: Any = plan.upload(listed), np.int32(use.shared.size), np.int32(stays_clear), self.sums
        self.clears = cleared.size > 0 or self._cleared_sums is not None

    def before(self, out: DeviceArray) -> None:
        """Clear empty rows, and in float32 rows that pieces are added into; or a large workspace."""
        self._cleared.enqueue(out)
        if self._cleared_sums is not None:
            self._cleared_sums.enqueue(self.sums)

    def after(self, out: DeviceArray) -> None:
        """Round the sums of the workspace to C, and clear empty rows behind them."""
        if self._rounded:
            self._round.launch(self._grid, (*self._sizes, *self._args, out), overlap=True)
