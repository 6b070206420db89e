"""The launchers of SpMM over small blocks, one warp each: SR-BCRS panels of eight rows, and 16 x 16 blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat, SrBcrsFormat
from spmark.impls.kernels.block_spmm import mma_pieces, transposed_pieces, vector_of
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
_WARP, _VECTOR = 32, 8
STRIPS = (1, 2, 4)
"""Block rows of a thread block."""
SPMM_STRIPS = KernelTemplate(
    Path(__file__).parent / "strip_spmm.cu",
    "spmm_strips",
    {"columns": (4, 8), "threads": tuple(_WARP * strips for strips in STRIPS)},
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
        instance = warp_kernel(problem.width, schedule)
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


def warp_kernel(width: int, schedule: Config) -> Instance:
    """Give the kernel of a schedule for a width J: of `SPMM_STRIPS` where it has ``strips``, else of `SPMM_PANELS`.

    Raises
    ------
    BuildError
        There is no such kernel.
    """
    tile = schedule["tile"]
    if "strips" in schedule:
        return SPMM_STRIPS.instance(columns=tile // 8, threads=_WARP * schedule["strips"])
    return SPMM_PANELS.instance(tile=tile, vector=vector_of(width), threads=_THREADS)


def panel_heads(indptr: NDArray[np.int32], turned: int) -> NDArray[np.int32]:
    """Give (panels, 4) int32: panel, first group, groups, group to start with; panels with many groups first."""
    counts = np.diff(indptr)
    order = np.argsort(-counts, kind="stable")
    counts = counts[order]
    turns = np.arange(counts.size) % np.maximum(counts, 1) * turned
    return np.stack([order, indptr[:-1][order], counts, turns], axis=1).astype(np.int32)


class StripSpmmPlan(OneLaunchPlan):
    """C = A B over BSR(16, 16), float16 with float32 sums; J is a multiple of 8.

    Parameters
    ----------
    bsr : BsrFormat
        Blocks of 16 x 16.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    strips, tile : int
        Block rows of a thread block, one a warp, and columns of C of a warp.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same format.
    """

    def __init__(
        self, problem: Problem, target: Target, bsr: BsrFormat, config: Config, arrays: Arrays = (), **schedule: int
    ) -> None:
        super().__init__(problem, target, {**config, **schedule}, alignment=_VECTOR * problem.dtype.itemsize)
        self.stored = bsr.stored
        self._load(warp_kernel(problem.width, schedule))
        with self.phase("convert"):
            pieces = () if arrays else (bsr.indices, mma_pieces(bsr.blocks))
        block_rows = bsr.indptr.size - 1
        grid = (ceil_div(block_rows, schedule["strips"]), ceil_div(problem.width, schedule["tile"]), 1)
        sizes = (*problem.matrix.shape, problem.width, block_rows)
        self._arrange(grid, sizes, (bsr.indptr,), self.share(arrays, pieces))
