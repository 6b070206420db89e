"""CuPy's own SpMM: ``a @ b`` with a ``cupyx.scipy.sparse.csr_matrix``, as a person who has CuPy writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.cupyxcsr import csr_matrix
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, open_target


@dataclass(frozen=True)
class Cupyx:
    """CuPy's product of a CSR matrix and a dense one."""

    name: ClassVar[str] = "cupyx"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse the types that CuPy's sparse matrices do not have."""
        return None if problem.dtype is DType.FLOAT32 else f"cupyx.scipy.sparse has no {problem.dtype}"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload A."""
        return CupyxPlan(problem, open_target(device))


class CupyxPlan(DevicePlan):
    """``a @ b``, whose column-major result is copied into the caller's."""

    def __init__(self, problem: Problem, target: Target) -> None:
        super().__init__(problem, target, {})
        self.deterministic = False
        self._matrix = csr_matrix(self, problem)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Multiply; CuPy takes memory from its pool."""
        out[...] = self._matrix @ operands[0]
