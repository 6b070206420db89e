"""The launcher of SpMM over 16 x 16 blocks by one warp a block row."""

from __future__ import annotations

from pathlib import Path

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_spmm import mma_pieces
from spmark.impls.runtime.plan import Arrays, OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import Instance, KernelTemplate

SIDE = 16
"""Rows and columns of a block."""
_WARP, _VECTOR = 32, 8
STRIPS = (1, 2, 4)
"""Block rows of a thread block."""
TILES = (32, 64)
"""Columns of C of a warp."""
SPMM_STRIPS = KernelTemplate(
    Path(__file__).parent / "strip_spmm.cu",
    "spmm_strips",
    {"columns": (4, 8), "threads": tuple(_WARP * strips for strips in STRIPS)},
    max_registers=96,
)


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
        self._load(strip_instance(**schedule))
        with self.phase("convert"):
            pieces = () if arrays else (bsr.indices, mma_pieces(bsr.blocks))
        block_rows = bsr.indptr.size - 1
        grid = (ceil_div(block_rows, schedule["strips"]), ceil_div(problem.width, schedule["tile"]), 1)
        sizes = (*problem.matrix.shape, problem.width, block_rows)
        self._arrange(grid, sizes, (bsr.indptr,), self.share(arrays, pieces))


def strip_instance(strips: int, tile: int) -> Instance:
    """Give the kernel."""
    return SPMM_STRIPS.instance(columns=tile // 8, threads=_WARP * strips)
