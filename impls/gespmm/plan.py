"""GE-SpMM's CSR kernel for SpMM and a plain kernel for SDDMM: our own CUDA baseline.

Huang, Dai, Wang and Yang, "GE-SpMM: General-Purpose Sparse Matrix-Matrix Multiplication on GPUs for Graph Neural
Networks", SC 2020. The matrix is used as it comes: building is an upload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.sddmm import SDDMM_CSR, SddmmPlan
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import MAX_GRID, Target, ceil_div, open_target
from spmark.impls.runtime.template import C_TYPES, KernelTemplate, TemplateValue

_FOLDER = Path(__file__).parent / "kernels"
THREADS = 128
BATCH = 4
_SDDMM_VECTOR = {DType.FLOAT32: 2, DType.FLOAT16: 8}
_COARSEN_WAVES = 64
"""Thread blocks for each multiprocessor that merging must leave: fewer, and long rows take longer than they save."""


def _loads_at_once(values: Mapping[str, TemplateValue]) -> bool:
    return values["T"] == "half" or int(values["vector"]) <= 4


SPMM = KernelTemplate(
    _FOLDER / "spmm.cu",
    "spmm_csr",
    {
        "T": ("float", "half"),
        "vector": (1, 2, 4, 8),
        "lanes": (8, 16, 32),
        "coarsen": (1, 2),
        "threads": (THREADS,),
    },
    legal=_loads_at_once,
    max_registers=96,
)


def _vector(width: int, most: int) -> int:
    return next(v for v in (8, 4, 2, 1) if v <= most and width % v == 0 and (v == 1 or 8 * v <= width))


def vector_and_lanes(width: int, dtype: DType) -> tuple[int, int]:
    """Choose elements of a load and lanes of a row: the widest load that keeps lanes busy, no more lanes than J needs.

    Rows of B start at multiples of J elements, so a load of v elements is aligned in every row only where v divides J.
    """
    vector = _vector(width, 16 // dtype.itemsize)
    lanes = next((n for n in (8, 16) if n * vector >= width), 32)
    return vector, lanes


def sddmm_vector_and_lanes(width: int, dtype: DType) -> tuple[int, int]:
    """Choose elements of a load and lanes of a non-zero: measured on an H200 (README).

    Four non-zeros at once fill the registers, so float32 is loaded 8 bytes at a time; few lanes leave few sums to add.
    """
    vector = _vector(width, _SDDMM_VECTOR[dtype])
    return vector, 8 if width <= 32 * vector else 16


class SpmmPlan(DevicePlan):
    """C = A B by `SPMM`."""

    def __init__(self, problem: Problem, target: Target, vector: int, lanes: int, coarsen: int) -> None:
        matrix = problem.matrix
        values = {"vector": vector, "lanes": lanes, "coarsen": coarsen, "threads": THREADS}
        super().__init__(problem, target, values, alignment=vector * problem.dtype.itemsize)
        self.stored = matrix.nnz
        with self.phase("compile"):
            (self._kernel,) = target.load([SPMM.instance(T=C_TYPES[problem.dtype], **values)])
        with self.phase("upload"):
            self._arrays = [self.upload(a) for a in (matrix.indptr, matrix.indices, problem.values)]
        self._sizes = np.int32(matrix.num_rows), np.int32(problem.width)
        self._grid = (ceil_div(matrix.num_rows, THREADS // lanes), ceil_div(problem.width, lanes * vector * coarsen), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """One launch; it writes every row."""
        self._kernel.launch(self._grid, (*self._sizes, *self._arrays, *operands, out))


@dataclass(frozen=True)
class GeSpmm:
    """CSR kernels with coalesced row caching."""

    name: ClassVar[str] = "gespmm"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM, SDDMM_CSR)

    coarsen: int = 0
    """Column tiles of one group (1 or 2; the paper's warp merging); 0 chooses 2 where enough blocks are left."""

    def __post_init__(self) -> None:
        if self.coarsen not in (0, 1, 2):
            raise ValueError(f"expected coarsen out of 0, 1, 2, found {self.coarsen}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        vector, lanes = vector_and_lanes(problem.width, problem.dtype)
        if ceil_div(problem.width, lanes * vector) > MAX_GRID[1]:
            return f"expected J of at most {MAX_GRID[1] * lanes * vector}, found {problem.width}"
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload the matrix; the kernel comes from the cache or is compiled."""
        target = open_target(device)
        if problem.op is Op.SDDMM:
            vector, lanes = sddmm_vector_and_lanes(problem.width, problem.dtype)
            return SddmmPlan(problem, target, {}, vector=vector, lanes=lanes, batch=BATCH, searched=False)
        vector, lanes = vector_and_lanes(problem.width, problem.dtype)
        rows = THREADS // lanes
        blocks = ceil_div(problem.matrix.num_rows, rows) * ceil_div(problem.width, 2 * lanes * vector)
        pays = problem.width >= 2 * lanes * vector and blocks >= _COARSEN_WAVES * device.num_sms
        coarsen = self.coarsen or (2 if pays else 1)
        return SpmmPlan(problem, target, vector, lanes, coarsen)
