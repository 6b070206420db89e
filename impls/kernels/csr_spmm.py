"""The launcher of SpMM over plain CSR, a group of lanes for each row: GE-SpMM's kernel, and others' fixed format.

Huang, Dai, Wang and Yang, "GE-SpMM: General-Purpose Sparse Matrix-Matrix Multiplication on GPUs for Graph Neural
Networks", SC 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, KernelTemplate, TemplateValue

THREADS = 128
_COARSEN_WAVES = 64
"""Thread blocks for each multiprocessor that merging must leave: fewer, and long rows take longer than they save."""


def _loads_at_once(values: Mapping[str, TemplateValue]) -> bool:
    return values["T"] == "half" or int(values["vector"]) <= 4


SPMM_CSR = KernelTemplate(
    Path(__file__).parent / "csr_spmm.cu",
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


def widest_load(width: int, most: int) -> int:
    """Give the elements of a load: of at most ``most`` those that divide J and leave eight lanes something to do."""
    return next(v for v in (8, 4, 2, 1) if v <= most and width % v == 0 and (v == 1 or 8 * v <= width))


def vector_and_lanes(width: int, dtype: DType) -> tuple[int, int]:
    """Choose elements of a load and lanes of a row: the widest load that keeps lanes busy, no more lanes than J needs.

    Rows of B start at multiples of J elements, so a load of v elements is aligned in every row only where v divides J.
    """
    vector = widest_load(width, 16 // dtype.itemsize)
    lanes = next((n for n in (8, 16) if n * vector >= width), 32)
    return vector, lanes


def coarsen_for(problem: Problem, device: DeviceSpec) -> int:
    """Choose column tiles of one group: 2 where that leaves enough blocks for every multiprocessor, else 1."""
    vector, lanes = vector_and_lanes(problem.width, problem.dtype)
    rows = THREADS // lanes
    blocks = ceil_div(problem.matrix.num_rows, rows) * ceil_div(problem.width, 2 * lanes * vector)
    pays = problem.width >= 2 * lanes * vector and blocks >= _COARSEN_WAVES * device.num_sms
    return 2 if pays else 1


class CsrSpmmPlan(DevicePlan):
    """C = A B by `SPMM_CSR`; deterministic, and every row is written.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says beside the schedule below.
    vector, lanes, coarsen : int
        Elements of a load, lanes of a row, column tiles of one group.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        config: Mapping[str, object],
        *,
        vector: int,
        lanes: int,
        coarsen: int,
    ) -> None:
        matrix = problem.matrix
        values = {"vector": vector, "lanes": lanes, "coarsen": coarsen, "threads": THREADS}
        super().__init__(problem, target, {**config, **values}, alignment=vector * problem.dtype.itemsize)
        self.stored = matrix.nnz
        with self.phase("compile"):
            (self._kernel,) = target.load([SPMM_CSR.instance(T=C_TYPES[problem.dtype], **values)])
        with self.phase("upload"):
            self._arrays = [self.upload(a) for a in (matrix.indptr, matrix.indices, problem.values)]
        self._sizes = np.int32(matrix.num_rows), np.int32(problem.width)
        self._grid = (ceil_div(matrix.num_rows, THREADS // lanes), ceil_div(problem.width, lanes * vector * coarsen), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """One launch; it writes every row."""
        self._kernel.launch(self._grid, (*self._sizes, *self._arrays, *operands, out))
