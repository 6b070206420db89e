"""Gather, GEMM and scatter on a target: kernels of our own around products of the vendor's library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, KernelTemplate, loads_of, widest_aligned

_THREADS = 256
_SOURCE = Path(__file__).parent / "kernels" / "rows.cu"
GATHER_ROWS = KernelTemplate(
    _SOURCE,
    "gather_rows",
    {"T": ELEMENTS, "vector": (1, 2, 4, 8), "threads": (_THREADS,)},
    max_registers=40,
)
SCATTER_ROWS = KernelTemplate(
    _SOURCE,
    "scatter_rows",
    {"T": ELEMENTS, "vector": (1, 2, 4), "threads": (_THREADS,)},
    max_registers=64,
)
Products = Callable[[Iterable[tuple[DeviceArray, DeviceArray, DeviceArray]]], None]
"""Multiplies left by right into out, for several products."""


class GatherGemmScatterPlan(DevicePlan):
    """Y in three steps, with a workspace for the gathered rows and a float32 one for their products.

    cuBLAS multiplies on a GPU, one call for each relation that has edges; in the host ring NumPy stands for it.
    """

    def __init__(self, problem: RelationalProblem, target: Target) -> None:
        matrix, widths, dtype = problem.matrix, (problem.width_in, problem.width_out), problem.dtype
        loads = widest_aligned(widths[0], dtype), loads_of(widths[1], 4)[0]
        super().__init__(problem, target, {}, alignment=max(loads) * dtype.itemsize)
        self.stored = matrix.nnz
        with self.phase("compile"):
            instances = [
                template.instance(T=C_TYPES[dtype], vector=vector, threads=_THREADS)
                for template, vector in zip((GATHER_ROWS, SCATTER_ROWS), loads, strict=True)
            ]
            self._gather, self._scatter = target.load(instances)
        with self.phase("convert"):
            order, bounds = matrix.by_relation
            slots = np.empty(matrix.nnz, np.int32)
            slots[order] = np.arange(matrix.nnz, dtype=np.int32)
        with self.phase("upload"):
            self._sources = self.upload(matrix.edges[2][order])
            self._edges = [self.upload(array) for array in (matrix.wide.indptr, slots, problem.values)]
            self._gathered = self.workspace((matrix.nnz, widths[0]), dtype.numpy)
            self._products = self.workspace((matrix.nnz, widths[1]), np.float32)
        parts = [(r, slice(bounds[r], bounds[r + 1])) for r in np.flatnonzero(np.diff(bounds)).tolist()]
        self._parts = [(r, self._gathered[part], self._products[part]) for r, part in parts]
        self._multiply = self._multiplier(widths, dtype)
        pieces = [width // vector for width, vector in zip(widths, loads, strict=True)]
        counts = matrix.nnz, matrix.num_rows
        self._sizes = [tuple(map(np.int32, sizes)) for sizes in zip(counts, pieces, strict=True)]
        self._grids = [(ceil_div(count * each, _THREADS), 1, 1) for count, each in zip(counts, pieces, strict=True)]

    def _multiplier(self, widths: tuple[int, int], dtype: DType) -> Products:
        if self.target.spec.kind is DeviceKind.HOST_SIMT:
            return partial(_multiply_on_host, dtype)
        from spmark.impls.runtime.gemm import Gemm

        return Gemm(self, widths[1], widths[0], (dtype, DType.FLOAT32))

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Gather rows, multiply them relation by relation, and add up products."""
        x, w = operands
        self._gather.launch(self._grids[0], (*self._sizes[0], self._sources, x, self._gathered))
        self._multiply((left, w[relation], products) for relation, left, products in self._parts)
        self._scatter.launch(self._grids[1], (*self._sizes[1], *self._edges, self._products, out))


def _multiply_on_host(dtype: DType, products: Iterable[tuple[Any, Any, Any]]) -> None:
    for left, right, out in products:
        np.matmul(dtype.numbers(left).astype(np.float32), dtype.numbers(right).astype(np.float32), out=out)
