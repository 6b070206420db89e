"""RGMS one relation after the other: products with its weights are summed over edges and added to Y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_hyb import RelationalHyb
from spmark.impls.kernels.relational_hyb import FLOAT_TILE, RGMS_HYB, RGMS_HYB_FLOAT, RelationalHybPlan
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.runtime.target import open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class RgmsNaive:
    """A launch of the fused kernel for each relation."""

    name: ClassVar[str] = "rgms_naive"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_HYB, RGMS_HYB_FLOAT, ROUND_SHARED_ROWS)

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        return too_wide(problem.width_out, _schedule(problem).get("tile", FLOAT_TILE), "width_out")

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort edges by relation."""
        own, target = Built(), open_target(device)
        with own.phase("convert"):
            held = RelationalHyb.of(problem.matrix, _slots(problem), xp=target.xp)
        plan = RelationalHybPlan(problem, target, held, {}, apart=True, **_schedule(problem))
        plan.charge(own.phases_s)
        return plan


def _slots(problem: RelationalProblem) -> int:
    return 64 if problem.dtype.narrow else 32


def _schedule(problem: RelationalProblem) -> dict[str, Any]:
    return {"ordered": False} | ({"tile": 64, "depth": 32} if problem.dtype.narrow else {})
