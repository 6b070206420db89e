"""The launcher of SpMM over plain CSR, a group of lanes for each row: GE-SpMM's kernel, which others use for CSR.

Huang, Dai, Wang and Yang, "GE-SpMM: General-Purpose Sparse Matrix-Matrix Multiplication on GPUs for Graph Neural
Networks", SC 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import DType, Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, KernelTemplate, widest_load

THREADS = 128
_COARSEN_WAVES = 64
"""Thread blocks for each multiprocessor that merging must leave: with fewer, long rows cost more than merging saves."""


SPMM_CSR = KernelTemplate(
    Path(__file__).parent / "csr_spmm.cu",
    "spmm_csr",
    {
        "T": ELEMENTS,
        "vector": (1, 2, 4, 8),
        "lanes": (8, 16, 32),
        "coarsen": (1, 2),
        "threads": (THREADS,),
    },
)


def vector_and_lanes(width: int, dtype: DType) -> tuple[int, int]:
    """Choose elements of a load and lanes of a row: the widest load that keeps lanes busy, no more lanes than J needs.

    Rows of B start at multiples of J elements, so a load of v elements is aligned in every row only where v divides J.
    """
    vector = widest_load(width, 16 // dtype.itemsize, 8)
    lanes = next((n for n in (8, 16) if n * vector >= width), 32)
    return vector, lanes


def coarsen_for(problem: Problem, device: DeviceSpec) -> int:
    """Choose column tiles of one group: 2 where that leaves enough blocks for every multiprocessor, else 1."""
    vector, lanes = vector_and_lanes(problem.width, problem.dtype)
    rows = THREADS // lanes
    blocks = ceil_div(problem.matrix.num_rows, rows) * ceil_div(problem.width, 2 * lanes * vector)
    pays = problem.width >= 2 * lanes * vector and blocks >= _COARSEN_WAVES * device.num_sms
    return 2 if pays else 1


class CsrSpmmPlan(OneLaunchPlan):
    """C = A B by a kernel over CSR with a group of lanes for each row; deterministic, and every row is written.

    Parameters
    ----------
    template : KernelTemplate
        Of ``T`` and the schedule; the kernel takes rows, J and A's arrays before B and C.
    columns : int
        Columns of C of one group.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule is added.
    **schedule : int
        ``lanes`` of a row, ``threads`` of a block, and what else the template has.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        template: KernelTemplate,
        columns: int,
        config: Mapping[str, object],
        **schedule: int,
    ) -> None:
        matrix = problem.matrix
        super().__init__(problem, target, {**config, **schedule}, schedule.get("vector", 1) * problem.dtype.itemsize)
        self._load(template.instance(T=C_TYPES[problem.dtype], **schedule))
        rows = schedule["threads"] // schedule["lanes"]
        grid = (ceil_div(matrix.num_rows, rows), ceil_div(problem.width, columns), 1)
        self._arrange(grid, (matrix.num_rows, problem.width), (matrix.indptr, matrix.indices, problem.values))
        self.values = self._args[-1]


def csr_plan(problem: Problem, target: Target, config: Mapping[str, object]) -> CsrSpmmPlan:
    """Plan C = A B by `SPMM_CSR`, with the schedule that the rules give."""
    vector, lanes = vector_and_lanes(problem.width, problem.dtype)
    tile = {"vector": vector, "lanes": lanes, "coarsen": coarsen_for(problem, target.spec)}
    return CsrSpmmPlan(problem, target, SPMM_CSR, math.prod(tile.values()), config, **tile, threads=THREADS)
