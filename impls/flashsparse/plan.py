"""SpMM and SDDMM over vectors of eight rows on the matrix unit in the manner of FlashSparse: float16, float32 sums.

Shi, Li, Xu, Fu, Wang and Wu, "FlashSparse: Minimizing Computation Redundancy for Fast Sparse Matrix Multiplications on
Tensor Cores", PPoPP 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.bsr import SrBcrsFormat
from spmark.impls.kernels.direct_spmm import in_pieces
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div, open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate, TemplateValue, widest_aligned

WINDOW, GROUP = 8, 8
"""Rows of a window, and vectors of a group."""
_TILE = 16
"""Columns of C of an mma tile."""
_WARP = 32
_PART = 32
"""Most groups of vectors of a thread block; longer windows are split."""
_FOLDER = Path(__file__).parent / "kernels"
_SPACE: dict[str, tuple[TemplateValue, ...]] = {"vector": (1, 2, 4, 8), "threads": (32, 64, 128)}
SPMM_FLASHSPARSE = KernelTemplate(_FOLDER / "spmm.cu", "spmm_flashsparse", _SPACE)
SDDMM_FLASHSPARSE = KernelTemplate(_FOLDER / "sddmm.cu", "sddmm_flashsparse", _SPACE)


def columns_of_warp(vector: int) -> int:
    """Give the columns of C of a warp whose lanes load so many elements of a row of B: 16 for each two."""
    return _TILE * max(1, vector // 2)


class FlashSparsePlan(OneLaunchPlan):
    """SpMM or SDDMM over windows of eight rows; deterministic, and every element is written.

    Parameters
    ----------
    part : int
        Most groups of vectors of a thread block.
    vector : int
        Elements of a dense row that a lane loads at once, a divisor of J.
    threads : int
        Threads of a block. SpMM has a warp for each `columns_of_warp`.
    """

    def __init__(self, problem: Problem, target: Target, *, part: int, vector: int, threads: int) -> None:
        config, spmm = {"part": part, "vector": vector, "threads": threads}, problem.op is Op.SPMM
        super().__init__(problem, target, config, alignment=vector * problem.dtype.itemsize)
        self._load((SPMM_FLASHSPARSE if spmm else SDDMM_FLASHSPARSE).instance(vector=vector, threads=threads))
        with self.phase("convert"):
            form = SrBcrsFormat.from_csr(problem.matrix, WINDOW, GROUP)
            groups = np.diff(form.indptr)
            order = np.argsort(-groups, kind="stable")
            parts = in_pieces(order, groups[order], part)
            held = form.blocks.astype(problem.dtype.numpy) if spmm else places_of(form)
        self.stored, self.values_in_order = form.stored, not spmm
        sizes = (problem.matrix.num_rows, problem.width, *(() if spmm else (problem.scaled,)), part)
        tiles = ceil_div(problem.width, columns_of_warp(vector) * threads // _WARP) if spmm else 1
        self._arrange((len(parts.entries), tiles, 1), sizes, (parts.entries, form.indptr, form.indices, held))
        more: tuple[Any, ...]
        with self.phase("upload"):
            if spmm:
                sums = self.workspace((parts.shared, WINDOW, problem.width), np.float32)
                self.values, more = self._args[-1], (sums, self.counters(parts.shared_rows * tiles))
            else:
                self.values = self.upload(problem.factors)
                more = (self.values,)
        self._args += more


def places_of(form: SrBcrsFormat) -> NDArray[np.int32]:
    """Give the position in CSR order of each element of the vectors, (groups, `GROUP`, `WINDOW`), -1 for padding."""
    places = np.full(form.blocks.shape, -1, np.int32)
    places.reshape(-1)[form.positions] = np.arange(form.positions.size)
    return np.ascontiguousarray(places.transpose(0, 2, 1))


@dataclass(frozen=True)
class FlashSparse:
    """Windows of eight rows cut into vectors, multiplied with operands that have changed places."""

    name: ClassVar[str] = "flashsparse"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_FLASHSPARSE, SDDMM_FLASHSPARSE)

    retired: ClassVar[Mapping[str, Any]] = {"part": _PART, "vector": 0, "threads": 0}

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, and widths beyond the grid."""
        if problem.dtype is not DType.FLOAT16:
            return f"expected float16, which the matrix unit takes here, found {problem.dtype}"
        vector, threads = _schedule(problem)
        spmm = problem.op is Op.SPMM
        return too_wide(problem.width, columns_of_warp(vector) * threads // _WARP) if spmm else None

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> SrBcrsFormat:
        """Give the windows of a plan."""
        return SrBcrsFormat.from_csr(problem.matrix, WINDOW, GROUP)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Condense the columns of every window, list the parts and upload."""
        vector, threads = _schedule(problem)
        return FlashSparsePlan(problem, open_target(device), part=_PART, vector=vector, threads=threads)


def _schedule(problem: Problem) -> tuple[int, int]:
    """Give the widest load that J allows, and a block of as many warps as J has work for in SpMM, up to four."""
    vector = widest_aligned(problem.width, problem.dtype)
    warps = ceil_div(problem.width, columns_of_warp(vector)) if problem.op is Op.SPMM else 4
    return vector, next((n for n in (32, 64) if n >= _WARP * warps), 128)
