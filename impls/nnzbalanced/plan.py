"""SpMM by four kernels in the manner of dgSPARSE: {sequential, parallel} reduction x balance of {rows, non-zeros}.

Dai, Huang, Yang, Yu, Zhang, Ding, Xie, Yang and Wang, "Heuristic Adaptability to Input Dynamics for SpMM on GPUs"
(DA-SpMM), DAC 2022; Huang, Dai, Wang, Ding and Xie, "Efficient Sparse Matrix Kernels based on Adaptive
Workload-Balancing and Parallel-Reduction", arXiv:2106.16064, 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.problem import Op, Problem, openings
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.csr_spmm import CsrSpmmPlan
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS, ZERO_ROWS, SharedRows, shared_instances
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Grid, Target, ceil_div, open_target, too_wide
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, KernelTemplate, TemplateValue, widest_aligned

_SOURCE = Path(__file__).parent / "kernels" / "spmm.cu"
_LOAD_BYTES = 16
THREADS = 128
WARP = 32
UNEVEN = 1.0
"""Standard deviation of the row lengths over their mean, from which non-zeros are balanced."""
PARALLEL_WIDTH, PARALLEL_TERMS = 32, 1 << 23
"""J, and products nnz J, up to which sums are reduced in parallel."""
_SCALARS = 4
"""J up to which sums are reduced in parallel for any number of products."""
BUSY_TERMS, LONG_TERMS = 1 << 25, 1 << 28
"""Products nnz J from which a group needs fewer loads on their way, and from which a span is long."""
SPAN, LONG_SPAN = 32, 128


_TYPES: Mapping[str, tuple[TemplateValue, ...]] = {"T": ELEMENTS, "vector": (1, 2, 4, 8)}
_LANES = (4, 8, 16, 32)
ROWS_SEQUENTIAL = KernelTemplate(_SOURCE, "spmm_rows_sequential", {**_TYPES, "lanes": _LANES, "threads": (THREADS,)})
ROWS_PARALLEL = KernelTemplate(_SOURCE, "spmm_rows_parallel", {**_TYPES, "lanes": (16, 32), "threads": (THREADS,)})
SPANS_SEQUENTIAL = KernelTemplate(
    _SOURCE, "spmm_spans_sequential", {**_TYPES, "lanes": _LANES, "flight": (4, 8), "threads": (THREADS,)}
)
SPANS_PARALLEL = KernelTemplate(_SOURCE, "spmm_spans_parallel", {**_TYPES, "threads": (THREADS,)})


def row_balanced(problem: Problem, target: Target, *, parallel: bool, vector: int, lanes: int) -> CsrSpmmPlan:
    """Plan C = A B with a group of threads for each row, which share its non-zeros (``parallel``) or its columns."""
    template, columns = (ROWS_PARALLEL, vector) if parallel else (ROWS_SEQUENTIAL, lanes * vector)
    config = {"reduction": "parallel" if parallel else "sequential", "balance": "rows"}
    return CsrSpmmPlan(problem, target, template, columns, config, vector=vector, lanes=lanes, threads=THREADS)


class NnzBalancedPlan(DevicePlan):
    """C = A B with a group of threads for each span of consecutive non-zeros.

    Parameters
    ----------
    parallel : bool
    span, vector : int
        Non-zeros of a group (a multiple of 32 where ``sums`` is None), and elements of a load.
    sums : (lanes, flight), optional
        Sequential reduction: threads of a group, which share the columns, and rows of B on their way. None for parallel
        reduction: the lanes of a warp share the span's non-zeros.
    """

    def __init__(
        self, problem: Problem, target: Target, *, span: int, vector: int, sums: tuple[int, int] | None
    ) -> None:
        matrix, half = problem.matrix, problem.dtype.narrow
        config = {"reduction": "sequential" if sums else "parallel", "balance": "nnz", "span": span}
        tile = {"vector": vector} | (dict(zip(("lanes", "flight"), sums, strict=True)) if sums else {})
        super().__init__(problem, target, {**config, **tile}, alignment=vector * problem.dtype.itemsize)
        with self.phase("convert"):
            rows = matrix.rows_of_entries()
            begins = openings(rows)
            begins[::span] = True
            use = row_use(matrix.num_rows, [rows[begins]])
            marks = use.targets(rows, numbered=half)
        template = SPANS_SEQUENTIAL if sums else SPANS_PARALLEL
        instance = template.instance(T=C_TYPES[problem.dtype], **tile, threads=THREADS)
        around = shared_instances(use.shared.size > 0, problem.width, problem.dtype, vector)
        self._kernel, *kernels = self.load([instance, *around])
        self._arrays = [self.upload(a) for a in (marks, matrix.indices, problem.values)]
        self.values = self._arrays[-1]
        self._shared = SharedRows(self, use, problem.width, problem.dtype, kernels)
        self.deterministic = use.shared.size == 0
        self._sizes = np.int32(matrix.nnz), np.int32(problem.width), np.int32(span)
        groups = ceil_div(matrix.nnz, span)
        lanes, columns = (sums[0], sums[0] * vector) if sums else (WARP, vector)
        self._grid: Grid = (ceil_div(groups, THREADS // lanes), ceil_div(problem.width, columns), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear empty and shared rows, compute, and round shared rows that were added up in float32."""
        self._shared.before(out)
        self._kernel.launch(self._grid, (*self._sizes, *self._arrays, *operands, out, self._shared.sums))
        self._shared.after(out)


@dataclass(frozen=True)
class NnzBalanced:
    """Four kernels, one of which a rule chooses."""

    name: ClassVar[str] = "nnzbalanced"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (
        *(ROWS_SEQUENTIAL, ROWS_PARALLEL, SPANS_SEQUENTIAL, SPANS_PARALLEL),
        *(ZERO_ROWS, ROUND_SHARED_ROWS),
    )
    retired: ClassVar[Mapping[str, Any]] = {"reduction": "auto", "balance": "auto", "span": 0}

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        vector = widest_aligned(problem.width, problem.dtype)
        return too_wide(problem.width, vector * _lanes(problem.width, vector))

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Choose a kernel, mark the non-zeros if they are balanced, upload."""
        target, vector = open_target(device), widest_aligned(problem.width, problem.dtype)
        parallel, by_nnz = choose(problem)
        lanes, terms = _lanes(problem.width, vector), problem.matrix.nnz * problem.width
        if not by_nnz:
            lanes = (WARP if problem.width <= _SCALARS else WARP // 2) if parallel else lanes
            return row_balanced(problem, target, parallel=parallel, vector=vector, lanes=lanes)
        span = LONG_SPAN if terms >= LONG_TERMS else SPAN
        whole = vector * problem.dtype.itemsize == _LOAD_BYTES
        sums = None if parallel else (lanes, 4 if whole and terms >= BUSY_TERMS else 8)
        return NnzBalancedPlan(problem, target, span=span, vector=vector, sums=sums)


def choose(problem: Problem) -> tuple[bool, bool]:
    """Say whether sums are reduced in parallel and whether non-zeros are balanced: the rule of the README."""
    matrix, width, lengths = problem.matrix, problem.width, problem.matrix.row_lengths
    few = width <= PARALLEL_WIDTH and matrix.nnz * width < PARALLEL_TERMS
    parallel = width <= _SCALARS or few
    uneven = bool(lengths.std() >= UNEVEN * lengths.mean()) and matrix.nnz > 0
    return parallel, uneven and not (parallel and problem.dtype.narrow)


def _lanes(width: int, vector: int) -> int:
    return next((lanes for lanes in _LANES if lanes * vector >= width), WARP)
