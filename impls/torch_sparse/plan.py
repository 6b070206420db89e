"""PyTorch's own sparse products, as a person who has a CSR tensor calls them.

SpMM is ``A @ b`` (``torch.sparse.mm``), SDDMM ``torch.sparse.sampled_addmm`` with ``beta=0``. PyTorch calls cuSPARSE on
a GPU and MKL, or its own loops, on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.runtime.withtorch import Tensor, TorchPlan, load_torch, torch_missing


@dataclass(frozen=True)
class TorchSparse:
    """PyTorch's products with a CSR tensor, into the caller's result."""

    name: ClassVar[str] = "torch_sparse"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU, DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar[str] = "torch"

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Say what PyTorch refuses, in its own words, or what is not installed; the first call imports PyTorch."""
        if problem.scaled:
            return "torch.sparse.sampled_addmm does not multiply by A"
        return torch_missing(device.kind) or _refusal(problem.op, problem.dtype, device.kind)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Make the CSR tensor, with 32-bit indices."""
        return _Plan(problem, device.kind)


class _Plan(TorchPlan):
    def __init__(self, problem: Problem, kind: DeviceKind) -> None:
        super().__init__(problem, kind)
        matrix, self._op = problem.matrix, problem.op
        on_gpu = kind is DeviceKind.CUDA
        # PyTorch asks cuSPARSE for an algorithm that adds sums of thread blocks in any order, in 16 bits as 16 bits.
        self.deterministic = not (on_gpu and self._op is Op.SPMM)
        self.half_sums = not self.deterministic and problem.dtype.narrow
        with self.phase("upload"):
            arrays = map(self.upload, (matrix.indptr, matrix.indices, problem.values))
            self._sparse = load_torch().sparse_csr_tensor(*arrays, size=matrix.shape, check_invariants=False)

    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        torch, matrix = load_torch(), self._sparse
        if self._op is Op.SPMM:
            torch.mm(matrix, operands[0], out=out)
            return
        pattern = matrix.crow_indices(), matrix.col_indices()
        result = torch.sparse_csr_tensor(*pattern, out, size=matrix.shape, check_invariants=False)
        torch.sparse.sampled_addmm(matrix, operands[0], operands[1].t(), beta=0, out=result)


@cache
def _refusal(op: Op, dtype: DType, kind: DeviceKind) -> str | None:
    """Ask PyTorch for the smallest product, and give its words where it refuses."""
    torch = load_torch()
    one = Problem(op, Csr.checked((1, 1), np.array([0, 1]), np.array([0]), np.ones(1, np.float32)), 1, dtype)
    try:
        plan = _Plan(one, kind)
        operands = [torch.ones(shape, dtype=plan._sparse.dtype, device=plan.place) for shape in one.operand_shapes]
        plan.compute(operands, torch.empty(one.out_shape, dtype=plan._sparse.dtype, device=plan.place))
    except RuntimeError as error:
        return f"PyTorch says: {str(error).strip().splitlines()[0]}"
    return None
