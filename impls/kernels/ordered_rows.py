"""Rows of C that several pieces share, without atomics: each piece has a row of a workspace, added up in order.

`spmark.impls.kernels.shared_rows` has the launches around a grid whose pieces are added up atomically.
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
from spmark.impls.runtime.target import Kernel, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, Instance, KernelTemplate, widest_aligned

_THREADS = 64
_MAX_BLOCKS = 65_536
SUM_PIECES = KernelTemplate(
    Path(__file__).parent / "ordered_rows.cu",
    "sum_pieces",
    {"T": ELEMENTS, "rounded": (False, True), "vector": (1, 2, 4, 8), "threads": (_THREADS,)},
)


def ordered_instances(width: int, dtype: DType, pieces: DType = DType.FLOAT32) -> list[Instance]:
    """Give the kernel of `OrderedRows`, which a plan loads with its own.

    Parameters
    ----------
    width : int
        J.
    dtype : DType
        Of C.
    pieces : DType
        What pieces are held in: float32, or ``dtype``, to which they are rounded.
    """
    vector = widest_aligned(width, dtype)
    return [SUM_PIECES.instance(T=C_TYPES[dtype], rounded=pieces.narrow, vector=vector, threads=_THREADS)]


class OrderedRows:
    """The launch after a grid whose pieces share rows. It also clears rows without a piece: their sums have no terms.

    Parameters
    ----------
    plan : DevicePlan
        Owner of the uploaded arrays and of the workspace; the plan calls `after` behind its grid.
    use : RowUse
    rows : (n,) int32
        Row of A of each piece.
    width : int
        J.
    kernels : sequence of Kernel
        The loaded `ordered_instances`.
    pieces : DType
        As of `ordered_instances`.

    Attributes
    ----------
    targets : (n,) int32
        r where row r has one piece, which writes it whole; -1 - p where the piece writes row p of `sums`.
    sums : device array
        A row for each piece of a shared row, row by row; at least one row.
    clears : bool
        Whether `before` launches anything: no.
    """

    clears = False

    def __init__(
        self,
        plan: DevicePlan,
        use: RowUse,
        rows: NDArray[np.int32],
        width: int,
        kernels: Sequence[Kernel],
        *,
        pieces: DType = DType.FLOAT32,
    ) -> None:
        number = np.full_like(rows, -1, shape=(use.num_rows,))
        number[use.shared] = np.arange(use.shared.size, dtype=np.int32, like=rows)
        mine = np.flatnonzero(number[rows] >= 0)
        mine = mine[np.argsort(number[rows[mine]], kind="stable")]
        self.targets = rows.copy()
        self.targets[mine] = -1 - np.arange(mine.size, dtype=np.int32, like=rows)
        written = np.append(use.shared, use.empty)
        bounds = np.append(0, np.cumsum(np.bincount(number[rows[mine]], minlength=written.size))).astype(np.int32)
        (self._adding,) = kernels
        self.sums: Any = plan.workspace((max(mine.size, 1), width), pieces.numpy)
        self._args = np.int32(written.size), np.int32(width), plan.upload(written), plan.upload(bounds), self.sums
        groups = max(1, _THREADS // (width // int(self._adding.instance.values["vector"])))
        self._grid = (min(ceil_div(written.size, groups), _MAX_BLOCKS), 1, 1)

    def before(self, out: DeviceArray) -> None:
        """Do nothing: pieces are written whole."""

    def after(self, out: DeviceArray) -> None:
        """Add up the pieces of each shared row, and clear rows without any."""
        self._adding.launch(self._grid, (*self._args, out), overlap=True)
