"""Gather, GEMM and scatter on a target: kernels of our own around products of the vendor's library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType, numbered
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.row_use import row_use
from spmark.impls.kernels.ordered_rows import OrderedRows, ordered_instances
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, NARROW, KernelTemplate, TemplateValue, widest_aligned

_THREADS = 256
_SOURCE = Path(__file__).parent / "kernels" / "rows.cu"
GATHER_ROWS = KernelTemplate(_SOURCE, "gather_rows", {"T": ELEMENTS, "vector": (1, 2, 4, 8), "threads": (_THREADS,)})
SCATTER_ROWS = KernelTemplate(
    _SOURCE,
    "scatter_rows",
    {"T": ELEMENTS, "Product": ("float", *NARROW), "vector": (1, 2, 4, 8), "threads": (_THREADS,)},
)
_PIECE = 64
"""Edges of a row that a thread adds up at most."""
Multiply = Callable[[DeviceArray], None]
"""Enqueues the products of the gathered rows and W."""


class GatherGemmScatterPlan(DevicePlan):
    """Y in three steps, with a workspace for the gathered rows and one for their products.

    cuBLAS multiplies on a GPU; in the host ring NumPy stands for it. Rows of many edges are added up in pieces, and
    these in order.

    Parameters
    ----------
    problem : RelationalProblem
    target : Target
    products : str
        ``grouped``: one call of cuBLAS for all relations, which rounds products to the dtype. ``each``: a call for each
        relation that has edges, whose products are float32.
    """

    def __init__(self, problem: RelationalProblem, target: Target, products: str) -> None:
        matrix, widths, dtype = problem.matrix, (problem.width_in, problem.width_out), problem.dtype
        kind = dtype if products == "grouped" else DType.FLOAT32
        loads = widest_aligned(widths[0], dtype), widest_aligned(widths[1], kind)
        # What clears rows and adds up pieces moves as much at once as the width allows.
        widest = max(*loads, widest_aligned(widths[1], dtype))
        super().__init__(problem, target, {"products": products}, alignment=widest * dtype.itemsize)
        self.half_sums = kind.narrow
        own: dict[str, TemplateValue] = {"T": C_TYPES[dtype], "threads": _THREADS}
        instances = [
            GATHER_ROWS.instance(**own, vector=loads[0]),
            SCATTER_ROWS.instance(**own, Product=C_TYPES[kind], vector=loads[1]),
        ]
        self._gather, self._scatter, *around = self.load([*instances, *ordered_instances(widths[1], dtype)])
        with self.phase("convert"):
            order, bounds = matrix.by_relation
            slots = np.empty(matrix.nnz, np.int32)
            slots[order] = np.arange(matrix.nnz, dtype=np.int32)
            of_piece, fold = numbered(-(-matrix.row_lengths // _PIECE))
            starts = np.append(matrix.wide.indptr[of_piece] + fold * _PIECE, matrix.nnz).astype(np.int32)
            rows = of_piece.astype(np.int32)
            use = row_use(matrix.num_rows, [rows])
        with self.phase("upload"):
            self._around = OrderedRows(self, use, rows, widths[1], around)
            self._sources = self.upload(matrix.edges[2][order])
            self._edges = [self.upload(array) for array in (starts, self._around.targets, slots, problem.values)]
            self._gathered = self.workspace((matrix.nnz, widths[0]), dtype.numpy)
            self._products = self.workspace((matrix.nnz, widths[1]), kind.numpy)
            parts = [(r, slice(bounds[r], bounds[r + 1])) for r in np.flatnonzero(np.diff(bounds)).tolist()]
            held = [(r, self._gathered[part], self._products[part]) for r, part in parts]
            self._multiply = self._multiplier(problem, kind, held)
        pieces = [width // vector for width, vector in zip(widths, loads, strict=True)]
        counts = matrix.nnz, rows.size
        self._sizes = [tuple(map(np.int32, sizes)) for sizes in zip(counts, pieces, strict=True)]
        self._grids = [(ceil_div(count * each, _THREADS), 1, 1) for count, each in zip(counts, pieces, strict=True)]

    def _multiplier(self, problem: RelationalProblem, kind: DType, parts: Sequence[Any]) -> Multiply:
        if self.target.spec.kind is DeviceKind.HOST_SIMT:
            return partial(_multiply_on_host, problem.dtype, kind, parts)
        from spmark.impls.runtime.gemm import Gemm, GroupedGemm

        if self.config["products"] == "grouped":
            return GroupedGemm(self, problem.dtype, parts, problem.operand_shapes[1])
        each = Gemm(self, problem.width_out, problem.width_in, (problem.dtype, kind))
        return lambda w: each((left, w[relation], products) for relation, left, products in parts)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Gather rows, multiply them relation by relation, and add up products."""
        x, w = operands
        self._gather.launch(self._grids[0], (*self._sizes[0], self._sources, x, self._gathered))
        self._multiply(w)
        self._scatter.launch(self._grids[1], (*self._sizes[1], *self._edges, self._products, out, self._around.sums))
        self._around.after(out)


def _multiply_on_host(dtype: DType, kind: DType, parts: Sequence[tuple[int, Any, Any]], w: Any) -> None:
    for relation, left, out in parts:
        wide = (dtype.numbers(each).astype(np.float32) for each in (left, w[relation]))
        out[...] = kind.stored(np.matmul(*wide))
