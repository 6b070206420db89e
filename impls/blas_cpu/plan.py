"""Dense BLAS on the host: the cost of ignoring zeros, which a sparse kernel must beat.

SpMM multiplies A as a dense matrix; SDDMM computes all of X Y^T and keeps the entries of A's pattern.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.operands import HostPlan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.stores import Held, StoreKind


@dataclass(frozen=True)
class BlasCpu:
    """NumPy's BLAS on dense matrices, with as many threads as that BLAS uses."""

    name: ClassVar[str] = "blas_cpu"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})

    max_dense_bytes: int = 1 << 31
    """Most bytes of the dense I x K matrix (A, or X Y^T), float32."""

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> list[Held]:
        """Store A as a dense matrix."""
        return [Held(StoreKind.BLOCK, "dense matrix", math.prod(problem.matrix.shape))]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse a dense form beyond the limit."""
        num_rows, num_cols = problem.matrix.shape
        needed, most = 4 * num_rows * num_cols, self.max_dense_bytes
        if needed <= most:
            return None
        what = f"{'A' if problem.op is Op.SPMM else 'X Y^T'} as a dense {num_rows} x {num_cols} matrix"
        return f"{what} takes {needed:,} bytes, max_dense_bytes is {most:,}"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Give a plan; for SpMM, A is written as a dense matrix, O(I K)."""
        return (_Spmm if problem.op is Op.SPMM else _Sddmm)(problem, {"max_dense_bytes": self.max_dense_bytes})


class _Spmm(HostPlan):
    def __init__(self, problem: Problem, config: dict[str, Any]) -> None:
        matrix = problem.matrix
        super().__init__(config, stored=math.prod(matrix.shape))
        with self.phase("convert"):
            self._dense = np.zeros(matrix.shape, np.float32)
            self._dense[matrix.rows_of_entries(), matrix.indices] = problem.dtype.numbers(problem.values)
            self.hold(problem, self._dense)

    def compute(self, dense: NDArray[np.float32], result: NDArray[np.float32]) -> None:
        """Compute C = A B."""
        np.matmul(self._dense, dense, out=result)


class _Sddmm(HostPlan):
    def __init__(self, problem: Problem, config: dict[str, Any]) -> None:
        matrix = problem.matrix
        super().__init__(config, stored=math.prod(matrix.shape))
        with self.phase("convert"):
            self._product = np.empty(matrix.shape, np.float32)
            self._positions = matrix.rows_of_entries() * np.int64(matrix.num_cols) + matrix.indices
            self._factors = problem.dtype.numbers(problem.factors).astype(np.float32, copy=False)
            self.hold(problem, self._product, self._positions, self._factors)

    def compute(self, x: NDArray[np.float32], y: NDArray[np.float32], result: NDArray[np.float32]) -> None:
        """Compute all of X Y^T, then keep A's entries."""
        np.matmul(x, y.T, out=self._product)
        # Positions are in range; mode="raise" would make take buffer its result.
        np.take(self._product.reshape(-1), self._positions, out=result, mode="clip")
        if self._factors.size:
            result *= self._factors
