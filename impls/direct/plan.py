"""SpMM straight from CSR, with a schedule by rule or searched.

Its family: Huang, Dai, Wang and Yang, "GE-SpMM", SC 2020; Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep
Learning", SC 2020; RA-SpMM's direct kernel. The README says which of their ideas the kernel has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.direct_spmm import SPMM_DIRECT, DirectPlan, direct_instance, usual_schedule
from spmark.impls.runtime.target import open_target, too_wide
from spmark.impls.runtime.template import Instance, KernelTemplate


@dataclass(frozen=True)
class Direct:
    """SpMM over CSR as it comes, a group of lanes for one or a few rows."""

    name: ClassVar[str] = "direct"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_DIRECT,)

    retired: ClassVar[Mapping[str, Any]] = dict.fromkeys(("lanes", "vectors", "parts", "unroll", "rows", "longest"), 0)

    search: bool = False
    """Measure some twenty schedules; otherwise the rules choose."""

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        chosen = usual_schedule(problem)
        return too_wide(problem.width, chosen["lanes"] * chosen["vector"] * chosen["vectors"])

    def ahead(self, problem: Problem) -> Iterable[Instance]:
        """Name the kernel of the rules, or those that the search is likely to ask for."""
        if not self.search:
            return [direct_instance(problem, usual_schedule(problem))]
        from spmark.impls.direct.search import kernels_ahead

        return kernels_ahead(problem)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where that is asked for and there are non-zeros and a GPU; list the long rows and upload."""
        if not self.search:
            return DirectPlan(problem, open_target(device), {}, **usual_schedule(problem))
        from spmark.impls.direct.search import search_direct
        from spmark.impls.kernels.direct_space import DIRECT_SPMM
        from spmark.impls.tuning.tune import tune

        return tune(problem, device, [DIRECT_SPMM], partial(search_direct, problem), owner="direct")
