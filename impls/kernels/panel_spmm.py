"""The launcher of SpMM over SR-BCRS panels of eight rows on the matrix unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import SrBcrsFormat
from spmark.impls.runtime.plan import Arrays, OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import Instance, KernelTemplate

PANEL, GROUP = 8, 16
"""Rows of a panel and columns of a group, the t and g of SR-BCRS(t, g), that the kernel takes."""
_THREADS = 128
_STAGES = 4
SPMM_PANELS = KernelTemplate(
    Path(__file__).parent / "panel_spmm.cu",
    "spmm_panels",
    {"tile": (64, 128), "vector": (1, 8), "threads": (_THREADS,)},
    max_registers=96,
)


class PanelSpmmPlan(OneLaunchPlan):
    """C = A B over SR-BCRS(8, 16), float16 with float32 sums.

    Parameters
    ----------
    form : SrBcrsFormat
        Panels of `PANEL` rows in groups of `GROUP` columns.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    tile : int
        Columns of C of a warp: 64, or 128 where J is a multiple of 8.
    turned : bool
        Panels start at different groups and go round, so that they do not all ask for the same rows of B at once.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same format.

    Raises
    ------
    BuildError
        There is no kernel with that tile for J.
    """

    def __init__(
        self, problem: Problem, target: Target, form: SrBcrsFormat, config: Config, arrays: Arrays = (), **schedule: int
    ) -> None:
        tile = schedule["tile"]
        instance = panel_instance(problem.width, tile)
        super().__init__(problem, target, {**config, **schedule}, alignment=int(instance.values["vector"]) * 2)
        self.stored = form.stored
        self._load(instance)
        warps = _THREADS // 32
        self._shared_bytes = warps * _STAGES * GROUP * (tile + 8) * 2
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            heads = panel_heads(form.indptr, schedule["turned"])
            pieces = () if arrays else (form.indices, transposed_pieces(form.blocks))
        grid = (ceil_div(heads.shape[0], warps), ceil_div(problem.width, tile), 1)
        sizes = (problem.matrix.num_rows, heads.shape[0], problem.width)
        self._arrange(grid, sizes, (heads,), self.share(arrays, pieces))


def panel_instance(width: int, tile: int) -> Instance:
    """Give the kernel for a width J.

    Raises
    ------
    BuildError
        There is no such kernel.
    """
    return SPMM_PANELS.instance(tile=tile, vector=8 if width % 8 == 0 else 1, threads=_THREADS)


def panel_heads(indptr: NDArray[np.int32], turned: int) -> NDArray[np.int32]:
    """Give (panels, 4) int32: panel, first group, groups, group to start with; panels with many groups first."""
    counts = np.diff(indptr)
    order = np.argsort(-counts, kind="stable")
    counts = counts[order]
    turns = np.arange(counts.size) % np.maximum(counts, 1) * turned
    return np.stack([order, indptr[:-1][order], counts, turns], axis=1).astype(np.int32)


def transposed_pieces(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Order groups as lanes hold them for the second operand of ``mma_m16n8k16``.

    Parameters
    ----------
    values : (n, 8, 16) float32

    Returns
    -------
    (n, 32, 4) float16
        The 4 elements of each lane, in the order of the operand's registers.
    """
    # Row = g, column = 8 half + 2 t + e; lane = 4 g + t, its registers are (half, e).
    parts = values.reshape(-1, PANEL, 2, 4, 2).transpose(0, 1, 3, 2, 4)
    return parts.astype(np.float16, order="C").reshape(-1, 32, 4)
