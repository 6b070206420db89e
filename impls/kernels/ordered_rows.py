"""Rows of C that several pieces share, without atomics: each piece has a row of a workspace, added up in order.

The launches around a grid, as `spmark.impls.kernels.shared_rows` has them for pieces that are added up atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType, offsets
from spmark.impls.formats.row_use import RowUse
from spmark.impls.kernels.shared_rows import RowZeroing, zeroing_instance
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Kernel, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, Instance, KernelTemplate, widest_aligned

_THREADS = 64
_MAX_BLOCKS = 65_536
SUM_PIECES = KernelTemplate(
    Path(__file__).parent / "ordered_rows.cu",
    "sum_pieces",
    {"T": ELEMENTS, "vector": (1, 2, 4, 8), "threads": (_THREADS,)},
    max_registers=56,
    max_spill_bytes=8,  # a compiler that fits a round number of registers puts a pointer aside
)


def ordered_instances(width: int, dtype: DType) -> list[Instance]:
    """Give the kernels of `OrderedRows`, which a plan loads with its own."""
    vector = widest_aligned(width, dtype)
    adding = SUM_PIECES.instance(T=C_TYPES[dtype], vector=vector, threads=_THREADS)
    return [zeroing_instance(width, dtype), adding]


class OrderedRows:
    """The launches before and after a grid whose pieces share rows.

    Parameters
    ----------
    plan : DevicePlan
        Owner of the uploaded arrays and of the workspace; the plan calls `before` and `after` around its grid.
    use : RowUse
    rows : (n,) int32
        Row of A of each piece.
    width : int
        J.
    kernels : sequence of Kernel
        The loaded `ordered_instances`.

    Attributes
    ----------
    targets : (n,) int32
        r where row r has one piece, which writes it whole; -1 - p where the piece writes row p of `sums`.
    sums : device array
        float32, a row for each piece of a shared row, row by row; at least one row.
    """

    def __init__(
        self, plan: DevicePlan, use: RowUse, rows: NDArray[np.int32], width: int, kernels: Sequence[Kernel]
    ) -> None:
        number = np.full(use.num_rows, -1, np.int32)
        number[use.shared] = np.arange(use.shared.size, dtype=np.int32)
        mine = np.flatnonzero(number[rows] >= 0)
        mine = mine[np.argsort(number[rows[mine]], kind="stable")]
        self.targets = rows.copy()
        self.targets[mine] = -1 - np.arange(mine.size, dtype=np.int32)
        bounds = offsets(np.bincount(number[rows[mine]], minlength=use.shared.size), np.int32)
        self.sums: Any = plan.workspace((max(mine.size, 1), width), np.float32)
        self._cleared, self._adding = RowZeroing(plan, use.empty, width, kernels[0]), kernels[1]
        self._args = np.int32(use.shared.size), np.int32(width), plan.upload(use.shared), plan.upload(bounds), self.sums
        groups = max(1, _THREADS // (width // int(kernels[1].instance.values["vector"])))
        self._grid = (min(ceil_div(int(use.shared.size), groups), _MAX_BLOCKS), 1, 1)

    def before(self, out: DeviceArray) -> None:
        """Clear rows without a piece."""
        self._cleared.enqueue(out)

    def after(self, out: DeviceArray) -> None:
        """Add up the pieces of each shared row."""
        self._adding.launch(self._grid, (*self._args, out), overlap=True)
