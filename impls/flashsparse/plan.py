"""SpMM over vectors of eight rows on the matrix unit in the manner of FlashSparse, in float16 with float32 sums.

Shi, Li, Xu, Fu, Wang and Wu, "FlashSparse: Minimizing Computation Redundancy for Fast Sparse Matrix Multiplications on
Tensor Cores", PPoPP 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.bsr import SrBcrsFormat
from spmark.impls.kernels.direct_spmm import in_pieces
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import MAX_GRID, Target, ceil_div, open_target
from spmark.impls.runtime.template import KernelTemplate, widest_aligned

WINDOW, GROUP = 8, 8
"""Rows of a window, and vectors of a group."""
_TILE = 16
"""Columns of C of an mma tile."""
_WARP = 32
SPMM_FLASHSPARSE = KernelTemplate(
    Path(__file__).parent / "kernels" / "spmm.cu",
    "spmm_flashsparse",
    {"vector": (1, 2, 4, 8), "threads": (32, 64, 128)},
    max_registers=80,
)


def columns_of_warp(vector: int) -> int:
    """Give the columns of C of a warp whose lanes load so many elements of a row of B: 16 for each two."""
    return _TILE * max(1, vector // 2)


class FlashSparsePlan(OneLaunchPlan):
    """C = A B over windows of eight rows; deterministic, and every row is written.

    Parameters
    ----------
    part : int
        Most groups of vectors of a thread block.
    vector : int
        Elements of a row of B that a lane loads at once, a divisor of J.
    threads : int
        Threads of a block: a warp for each `columns_of_warp`.
    """

    values_in_order = False

    def __init__(self, problem: Problem, target: Target, *, part: int, vector: int, threads: int) -> None:
        config = {"part": part, "vector": vector, "threads": threads}
        super().__init__(problem, target, config, alignment=vector * problem.dtype.itemsize)
        self._load(SPMM_FLASHSPARSE.instance(vector=vector, threads=threads))
        with self.phase("convert"):
            form = SrBcrsFormat.from_csr(problem.matrix, WINDOW, GROUP)
            groups = np.diff(form.indptr)
            order = np.argsort(-groups, kind="stable")
            parts = in_pieces(order, groups[order], part)
        self.stored = form.stored
        tiles = ceil_div(problem.width, columns_of_warp(vector) * threads // _WARP)
        with self.phase("upload"):
            lists = map(self.upload, (parts.entries, form.indptr, form.indices))
            self.values = self.upload(form.blocks.astype(problem.dtype.numpy))
            sums = self.workspace((parts.shared, WINDOW, problem.width), np.float32)
            counters = self.counters(parts.shared_rows * tiles)
            sizes = map(np.int32, (problem.matrix.num_rows, problem.width, part))
            self._args = (*sizes, *lists, self.values, sums, counters)
        self._grid = (len(parts.entries), tiles, 1)


@dataclass(frozen=True)
class FlashSparse:
    """Windows of eight rows cut into vectors, multiplied with operands that have changed places."""

    name: ClassVar[str] = "flashsparse"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_FLASHSPARSE,)

    part: int = 32
    """Most groups of eight vectors of a thread block; longer windows are split."""
    vector: int = 0
    """Elements of a row of B that a lane loads at once (1, 2, 4, 8; a divisor of J), for 16 columns a warp, or 32 with
    4 and 64 with 8; 0 takes the most that divide J."""
    threads: int = 0
    """Threads of a block (32, 64, 128); 0 takes as many warps as J has work for."""

    def __post_init__(self) -> None:
        check_choices(self, **{name: (0, *values) for name, values in SPMM_FLASHSPARSE.space.items()})
        if self.part < 1:
            raise ValueError(f"expected a part of at least 1 group, found {self.part}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, a pinned load that J does not allow, and widths beyond the grid."""
        if problem.dtype is not DType.FLOAT16:
            return f"expected float16, which the matrix unit takes here, found {problem.dtype}"
        vector, threads = self._schedule(problem)
        if problem.width % vector:
            return f"expected J to be a multiple of vector = {vector}, found {problem.width}"
        most = MAX_GRID[1] * columns_of_warp(vector) * threads // _WARP
        return f"expected J of at most {most}, found {problem.width}" if problem.width > most else None

    def _schedule(self, problem: Problem) -> tuple[int, int]:
        vector = self.vector or widest_aligned(problem.width, problem.dtype)
        warps = ceil_div(problem.width, columns_of_warp(vector))
        return vector, self.threads or next((n for n in (32, 64) if n >= _WARP * warps), 128)

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> SrBcrsFormat:
        """Give the windows of a plan."""
        return SrBcrsFormat.from_csr(problem.matrix, WINDOW, GROUP)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Condense the columns of every window, list the parts and upload."""
        vector, threads = self._schedule(problem)
        return FlashSparsePlan(problem, open_target(device), part=self.part, vector=vector, threads=threads)
