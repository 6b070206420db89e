"""Rows of C that several pieces add up to, and rows that have none: what a plan launches before and after its grid.

In float32 shared rows are cleared in C and added into there. In float16 they are added up in a float32 workspace, which
is cleared before and rounded to C after, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.formats.decompose import RowUse
from spmark.impls.kernels.zeroing import RowZeroing, zeroing_instance
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Kernel
from spmark.impls.runtime.template import Instance, KernelTemplate

_THREADS = 64
_MAX_BLOCKS = 4096
ROUND_SHARED_ROWS = KernelTemplate(
    Path(__file__).parent / "shared_rows.cu",
    "round_shared_rows",
    {"T": ("half",), "vector": (1, 2, 4, 8), "threads": (_THREADS,)},
    max_registers=40,
)


def shared_instances(shared: bool, width: int, dtype: DType, vector: int) -> list[Instance]:
    """Give the kernels of `SharedRows`, which a plan loads with its own: all are compiled side by side.

    Parameters
    ----------
    shared : bool
        Whether pieces share any row.
    width, dtype, vector
        As of `SharedRows`.
    """
    clearing = [zeroing_instance(width, dtype)]
    if dtype is not DType.FLOAT16 or not shared:
        return clearing
    rounding = ROUND_SHARED_ROWS.instance(T="half", vector=vector, threads=_THREADS)
    return [*clearing, zeroing_instance(width, DType.FLOAT32), rounding]


class SharedRows:
    """The launches around a grid whose pieces share rows.

    Parameters
    ----------
    plan : DevicePlan
        Owner of what is uploaded and of the workspace; it calls `before` and `after` around its grid.
    use : RowUse
    width : int
        J.
    dtype : DType
        Of C.
    kernels : sequence of Kernel
        Of `shared_instances`; its ``vector`` is the elements of C stored at once when the workspace is rounded, and
        divides J.

    Attributes
    ----------
    sums : device array
        What kernels take as their workspace: float32, a row for each of ``use.shared`` in float16, else a row that
        nobody touches.
    numbered : bool
        Whether targets of shared rows count its rows (see `RowUse.targets`).
    """

    def __init__(self, plan: DevicePlan, use: RowUse, width: int, dtype: DType, kernels: Sequence[Kernel]) -> None:
        self.numbered = dtype is DType.FLOAT16
        self.sums: Any = plan.workspace((max(use.shared.size, 1) if self.numbered else 1, width), np.float32)
        cleared = use.empty if self.numbered else np.sort(np.concatenate([use.empty, use.shared]))
        self._cleared = RowZeroing(plan, cleared, width, kernels[0])
        self._rounded = self.numbered and use.shared.size > 0
        if self._rounded:
            every = np.arange(use.shared.size, dtype=np.int32)
            _, clearing, self._round = kernels
            self._cleared_sums = RowZeroing(plan, every, width, clearing)
            self._shared: Any = plan.upload(use.shared)
        self._sizes = np.int32(use.shared.size), np.int32(width)
        self._grid = (min(int(use.shared.size), _MAX_BLOCKS), 1, 1)

    def before(self, out: DeviceArray) -> None:
        """Clear what is empty, and what will be added into."""
        self._cleared.enqueue(out)
        if self._rounded:
            self._cleared_sums.enqueue(self.sums)

    def after(self, out: DeviceArray) -> None:
        """Round what was added up in the workspace."""
        if self._rounded:
            self._round.launch(self._grid, (*self._sizes, self._shared, self.sums, out), overlap=True)
