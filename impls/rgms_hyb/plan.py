"""RGMS over the 3-D hyb, one fused kernel: no product of an edge reaches memory.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_hyb import WIDEST, WIDTHS, RelationalHyb
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_hyb import RGMS_HYB, RGMS_HYB_FLOAT, RelationalHybPlan, unfit
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import KernelTemplate

PUBLISHED_SLOTS = {DType.FLOAT32: 32, DType.FLOAT16: 256, DType.BFLOAT16: 256}
"""Elements of a group in the paper's kernels: on ordinary cores, and on the matrix unit."""


@dataclass(frozen=True)
class RgmsHyb:
    """RGMS as SparseTIR has it: rows of each relation in ELL buckets, a group of one relation for a thread block."""

    name: ClassVar[str] = "rgms_hyb"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_HYB, RGMS_HYB_FLOAT, ROUND_SHARED_ROWS, SUM_PIECES)

    slots: int = 0
    """Elements of a group (float32: 32, 64; 16 bits: 64, 128, 256); 0 takes the paper's 32 and 256."""
    widest: int = WIDEST
    """Width of the widest bucket (1, 2, 4, 8, 16); 1 for maps of sparse convolutions."""
    tile: int = 0
    """Columns of Y of a thread block in 16 bits (32, 64 up to 128 slots, 128 with 64 slots); 0 takes the paper's 32."""
    depth: int = 0
    """Columns of X between two barriers in 16 bits (32, 64); 0 takes 64 where X has more than 32."""
    ordered: bool = False
    """Add up the rows that several ELL rows share in a fixed order, in a second launch, instead of atomically."""

    def __post_init__(self) -> None:
        slots = (0, *RGMS_HYB_FLOAT.space["slots"], *RGMS_HYB.space["slots"])
        depths = (0, *RGMS_HYB.space["depth"])
        check_choices(self, slots=slots, widest=WIDTHS, tile=(0, *RGMS_HYB.space["tile"]), depth=depths)

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse slots and tiles for which there is no kernel, and widths beyond the grid."""
        return unfit(problem, self._slots(problem), self._schedule(problem))

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Lay the matrix out and upload it."""
        own, slots = Built(), self._slots(problem)
        with own.phase("convert"):
            held = RelationalHyb.of(problem.matrix, slots, self.widest)
        config = {"slots": slots, "widest": self.widest}
        plan = RelationalHybPlan(problem, open_target(device), held, config, **self._schedule(problem))
        plan.charge(own.phases_s)
        return plan

    def _slots(self, problem: RelationalProblem) -> int:
        return self.slots or PUBLISHED_SLOTS[problem.dtype]

    def _schedule(self, problem: RelationalProblem) -> dict[str, Any]:
        if not problem.dtype.narrow:
            return {"ordered": self.ordered}
        depth = self.depth or (32 if problem.width_in <= 32 else 64)
        return {"ordered": self.ordered, "tile": self.tile or 32, "depth": depth}
