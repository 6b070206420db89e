"""RGMS as frameworks have it: a row of X for each edge, a dense product for each relation, and a sum over edges.

The form of PyTorch Geometric's and DGL's relational layers, and of Tang, Liu, Li, Lin and Han, "TorchSparse: Efficient
Point Cloud Inference Engine", MLSys 2022, section 2.2, for sparse convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import _sparsetools

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operands import HostPlan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.gather_gemm_scatter.device import GATHER_ROWS, SCATTER_ROWS, GatherGemmScatterPlan
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.tuning.race import fastest_plan


@dataclass(frozen=True)
class GatherGemmScatter:
    """Rows gathered for all edges, a GEMM for each relation, products added up: cuBLAS on a GPU, NumPy on a CPU."""

    name: ClassVar[str] = "gather_gemm_scatter"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset(DeviceKind)
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (GATHER_ROWS, SCATTER_ROWS, SUM_PIECES)

    products: str = "fastest"
    """``each``: a call of cuBLAS for each relation, with float32 products. ``grouped``: one for all, by cuBLAS 12.5 or
    newer, whose products are rounded to the dtype. ``fastest`` measures which is faster."""

    def __post_init__(self) -> None:
        check_choices(self, products=("fastest", "each", "grouped"))

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse grouped products on a CPU."""
        on_cpu = device.kind is DeviceKind.CPU
        return "expected a GPU for grouped products" if self.products == "grouped" and on_cpu else None

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort edges by relation; on a GPU race both ways to multiply where none is asked for."""
        if device.kind is DeviceKind.CPU:
            return _OnHost(problem)
        build = partial(GatherGemmScatterPlan, problem, open_target(device))
        if self.products != "fastest":
            return build(self.products)
        if device.kind is not DeviceKind.CUDA:
            return build("each")
        ways = [{"products": "each"}, {"products": "grouped"}]
        return fastest_plan(problem, device, lambda config: build(**config), ways)


class _OnHost(HostPlan):
    def __init__(self, problem: RelationalProblem) -> None:
        super().__init__(stored=problem.matrix.nnz)
        matrix, nnz = problem.matrix, problem.matrix.nnz
        with self.phase("convert"):
            order, bounds = matrix.by_relation
            self._sources = matrix.edges[2][order]
            self._ranges = [(r, slice(bounds[r], bounds[r + 1])) for r in np.flatnonzero(np.diff(bounds)).tolist()]
            # Row i of this matrix adds up row i of Y: its edges are in the order of the wide CSR.
            self._indptr, self._slots = matrix.wide.indptr, np.empty(nnz, np.int32)
            self._slots[order] = np.arange(nnz, dtype=np.int32)
            self._values = problem.dtype.numbers(problem.values).astype(np.float32, copy=False)
            self._gathered = np.empty((nnz, problem.width_in), np.float32)
            self._products = np.empty((nnz, problem.width_out), np.float32)
            held = self._sources, self._indptr, self._slots, self._values, self._gathered, self._products
            self.hold(problem, *held)

    def compute(self, x: Any, w: Any, result: Any) -> None:
        """Compute Y."""
        # Indices are in range; mode="raise" would make take buffer its result.
        np.take(x, self._sources, axis=0, out=self._gathered, mode="clip")
        for relation, edges in self._ranges:
            np.matmul(self._gathered[edges], w[relation], out=self._products[edges])
        result.fill(0)
        shape, ends = (result.shape[0], self._slots.size), (self._products.reshape(-1), result.reshape(-1))
        _sparsetools.csr_matvecs(*shape, result.shape[1], self._indptr, self._slots, self._values, *ends)
