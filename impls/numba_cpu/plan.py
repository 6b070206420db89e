"""CSR kernels on all cores of the host, compiled by Numba: the CPU baseline with all cores.

Rows are given to threads in contiguous ranges of equal cost; the layout is the plain CSR of the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operands import HostPlan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.threads import equal_shares
from spmark.impls.numba_cpu import kernels


@dataclass(frozen=True)
class NumbaCpu:
    """CSR SpMM and SDDMM on the host's cores.

    Raises
    ------
    ValueError
        ``threads`` is below 1 or above the number that Numba started with.
    """

    name: ClassVar[str] = "numba_cpu"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})

    threads: int = numba.config.NUMBA_NUM_THREADS
    """Threads; the default is every core that the process may use (or the variable NUMBA_NUM_THREADS)."""

    def __post_init__(self) -> None:
        most = numba.config.NUMBA_NUM_THREADS
        if not 1 <= self.threads <= most:
            raise ValueError(f"expected threads in [1, {most}], found {self.threads}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse nothing."""
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Give a plan; the first of an operator in a process compiles its kernel (phase ``compile``)."""
        return _Plan(problem, self.threads)


class _Plan(HostPlan):
    def __init__(self, problem: Problem, threads: int) -> None:
        matrix = problem.matrix
        super().__init__(config={"threads": threads}, stored=matrix.nnz)
        self._threads = threads
        with self.phase("convert"):
            values = problem.dtype.numbers(problem.values).astype(np.float32, copy=False)
            arrays = equal_shares(matrix.indptr, threads), matrix.indptr, matrix.indices, values
            self.values = values
            self.hold(problem, *arrays)
        self._sparse = arrays if problem.op is Op.SPMM else (*arrays, problem.scaled)
        self._kernel = kernels.spmm if problem.op is Op.SPMM else kernels.sddmm
        # Exactly the types that a run passes: a conversion of types would cost more than a small product.
        matrix_type, vector_type = numba.float32[:, ::1], numba.float32[::1]
        result_type = matrix_type if problem.op is Op.SPMM else vector_type
        types = *map(numba.typeof, self._sparse), *(matrix_type for _ in problem.operand_shapes), result_type
        with self.phase("compile"):
            self._kernel.compile(types)

    def compute(self, *arrays: NDArray[np.float32]) -> None:
        """Compute C = A B, or D. The first run on read-only operands compiles once more."""
        numba.set_num_threads(self._threads)
        self._kernel(*self._sparse, *arrays)
