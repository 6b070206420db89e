"""SpMM over a composition of formats: dense blocks on the matrix unit, the rest in ELL buckets or CSR, one fused grid.

The composable formats of Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in
Deep Learning", ASPLOS 2023, sections 1 and 3.2.1: a matrix with dense spots and a scattered rest is stored as the sum
of both, each part in the format and on the units that fit it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.decompose import Rule, decompose
from spmark.impls.formats.rules import BlockRule, Buckets, Remainder
from spmark.impls.kernels.composed import SPMM_COMPOSED, ComposedPlan
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.kernels.zeroing import ZERO_ROWS
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import KernelTemplate, loads_of


@dataclass(frozen=True)
class SparseTirComposed:
    """BSR(block) of the dense blocks, hyb(1, k) of the rest, and CSR of the rows that hyb leaves."""

    name: ClassVar[str] = "sparsetir_composed"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_COMPOSED, ROUND_SHARED_ROWS, ZERO_ROWS)

    block: int = 16
    """Rows and columns of a block: 16 or 32, or 0 for none."""
    min_density: float = 0.25
    """Least share of non-zeros among a block's elements for which the block is stored as a block."""
    max_width: int = 32
    """2^k, width of the last bucket."""
    fold: bool = True
    """Fold rows longer than the last bucket; otherwise they go to CSR, a row in one piece."""

    def __post_init__(self) -> None:
        if self.block not in (0, *SPMM_COMPOSED.space["size"]):
            raise ValueError(f"expected block out of 0, 16, 32, found {self.block}")
        self.rules()

    def rules(self) -> list[Rule]:
        """Give the rules of the decomposition."""
        dense: list[Rule] = [BlockRule(self.block, self.min_density)] if self.block else []
        return [*dense, Buckets(self.max_width, fold=self.fold), Remainder()]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32: blocks are multiplied on the matrix unit, and TF32 is not float32."""
        if problem.dtype is not DType.FLOAT16:
            return f"expected float16 for the matrix unit, found {problem.dtype}"
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Decompose, upload; the kernel comes from the cache or is compiled."""
        own = Built()
        with own.phase("convert"):
            parts = decompose(problem.matrix, self.rules())
        config = {"block": self.block, "min_density": self.min_density, "max_width": self.max_width, "fold": self.fold}
        vector = loads_of(problem.width, 8)[0]
        lanes = 8 if problem.width <= 8 * vector else 32
        plan = ComposedPlan(problem, open_target(device), parts, config, vector=vector, lanes=lanes)
        plan.charge(own.phases_s)
        return plan
