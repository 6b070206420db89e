"""Ordered zeroing: a launch of its own clears the rows that are added into atomically, or that stay without a block.

The launch is enqueued before the compute grid on the same stream, which keeps their order. To clear inside the grid
would race with the first additions; to clear all of C would write rows that the grid writes anyway.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Kernel, ceil_div
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate, widest_aligned

_THREADS = 64
_MAX_BLOCKS = 4096
ZERO_ROWS = KernelTemplate(
    Path(__file__).parent / "zero_rows.cu",
    "zero_rows",
    {"T": ("float", "half"), "vector": (1, 2, 4, 8), "threads": (_THREADS,)},
    max_registers=32,
)


def zeroing_instance(width: int, dtype: DType) -> Instance:
    """Give the kernel that clears rows of J elements."""
    vector = widest_aligned(width, dtype)
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
        # Narrow rows take few threads each, so that millions of rows are not one block's turn each.
        lanes = min(_THREADS, 1 << (ceil_div(width, int(kernel.instance.values["vector"])) - 1).bit_length())
        self._sizes = np.int32(rows.size), np.int32(width), np.int32(lanes)
        self._grid = (min(ceil_div(int(rows.size), _THREADS // lanes), _MAX_BLOCKS), 1, 1)

    def enqueue(self, out: DeviceArray) -> None:
        """Clear the rows of ``out``."""
        self._kernel.launch(self._grid, (*self._sizes, self._rows, out))
