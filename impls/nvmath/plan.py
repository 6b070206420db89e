"""NVIDIA's SpMM for Python: ``nvmath.sparse.Matmul`` of nvmath-python, planned once and executed many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import not_installed
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.cupyxcsr import csr_matrix
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, open_target


@dataclass(frozen=True)
class NvMath:
    """nvmath-python's planned product of a CSR matrix and a dense one."""

    name: ClassVar[str] = "nvmath"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("nvmath",)
    extra: ClassVar[str] = "nvmath"

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse the types that CuPy's sparse matrices, which hold A, do not have; say what is not installed."""
        if problem.dtype is not DType.FLOAT32:
            return f"cupyx.scipy.sparse, which holds A, has no {problem.dtype}"
        if not problem.matrix.nnz:
            return "cuSPARSE takes no matrix without non-zeros"
        return not_installed(self.needs, self.extra)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload A, and let nvmath plan."""
        return NvMathPlan(problem, open_target(device))


class NvMathPlan(DevicePlan):
    """A planned `nvmath.sparse.Matmul`, into which every run puts its operand and its result."""

    def __init__(self, problem: Problem, target: Target) -> None:
        from nvmath.sparse import Matmul  # pyright: ignore[reportMissingImports]

        super().__init__(problem, target, {})
        self.deterministic = False
        matrix = csr_matrix(self, problem)
        with self.phase("select"):
            shapes = (*problem.operand_shapes, problem.out_shape)
            self._product = Matmul(matrix, *(target.empty(one, problem.dtype.numpy) for one in shapes), beta=0.0)
            self._product.plan()

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Execute what was planned."""
        self._product.reset_operands_unchecked(b=operands[0], c=out)
        self._product.execute()

    def __del__(self) -> None:
        if hasattr(self, "_product"):
            self._product.free()
