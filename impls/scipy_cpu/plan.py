"""SciPy on one core: the baseline that every machine has.

SpMM is SciPy's CSR product; SDDMM, which SciPy does not have, gathers rows in chunks and contracts them with einsum.
A `PlainProblem`'s float64 is computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import _sparsetools

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operands import HostPlan, widened
from spmark.impls.core.problem import Op, Problem


@dataclass(frozen=True)
class ScipyCpu:
    """SciPy's CSR times dense, and a chunked einsum for SDDMM, both on one core.

    Raises
    ------
    ValueError
        ``chunk_bytes`` below 1.
    """

    name: ClassVar[str] = "scipy_cpu"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})

    chunk_bytes: int = 1 << 19
    """SDDMM: bytes of gathered rows at a time, both operands together; they should stay in the L2 cache."""

    def __post_init__(self) -> None:
        if self.chunk_bytes < 1:
            raise ValueError(f"expected chunk_bytes of at least 1, found {self.chunk_bytes}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse nothing."""
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Give a plan; nothing is converted unless the dtype has 16 bits."""
        return _Spmm(problem) if problem.op is Op.SPMM else _Sddmm(problem, self.chunk_bytes)


class _Spmm(HostPlan):
    def __init__(self, problem: Problem) -> None:
        super().__init__(stored=problem.matrix.nnz)
        self._matrix = problem.matrix
        with self.phase("convert"):
            self.values = self._values = widened(problem, problem.values)
            self.hold(problem, self._matrix.indptr, self._matrix.indices, self._values)

    def compute(self, dense: NDArray[Any], result: NDArray[Any]) -> None:
        """Compute C = A B."""
        result.fill(0)
        # csr_array.__matmul__ calls this function, too, but allocates an array for the result.
        matrix, ends = self._matrix, (dense.reshape(-1), result.reshape(-1))
        _sparsetools.csr_matvecs(*matrix.shape, dense.shape[1], matrix.indptr, matrix.indices, self._values, *ends)


class _Sddmm(HostPlan):
    def __init__(self, problem: Problem, chunk_bytes: int) -> None:
        matrix = problem.matrix
        super().__init__(config={"chunk_bytes": chunk_bytes}, stored=matrix.nnz)
        self._cols = matrix.indices
        with self.phase("convert"):
            self._rows = matrix.rows_of_entries()
            self.values = self._factors = widened(problem, problem.factors)
            kind = self._factors.dtype
            self._entries = max(1, min(matrix.nnz, chunk_bytes // (2 * kind.itemsize * problem.width)))
            self._left, self._right = (np.empty((self._entries, problem.width), kind) for _ in range(2))
            self.hold(problem, self._rows, self._cols, self._left, self._right, self._factors)

    def compute(self, x: NDArray[Any], y: NDArray[Any], result: NDArray[Any]) -> None:
        """Compute D, chunk by chunk."""
        for start in range(0, result.size, self._entries):
            part = slice(start, start + self._entries)
            rows, cols = self._rows[part], self._cols[part]
            # Indices are in range; mode="raise" would make take buffer its result.
            left = np.take(x, rows, axis=0, out=self._left[: rows.size], mode="clip")
            right = np.take(y, cols, axis=0, out=self._right[: cols.size], mode="clip")
            np.einsum("pj,pj->p", left, right, out=result[part])
            if self._factors.size:
                result[part] *= self._factors[part]
