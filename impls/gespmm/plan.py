"""GE-SpMM's CSR kernel for SpMM and a plain kernel for SDDMM: our own CUDA baseline.

Huang, Dai, Wang and Yang, "GE-SpMM: General-Purpose Sparse Matrix-Matrix Multiplication on GPUs for Graph Neural
Networks", SC 2020. The matrix stays in CSR, so that building is an upload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.csr_spmm import SPMM_CSR, csr_plan, vector_and_lanes
from spmark.impls.kernels.sddmm import SDDMM_CSR, SddmmPlan
from spmark.impls.runtime.target import open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate, widest_load

BATCH = 4


@dataclass(frozen=True)
class GeSpmm:
    """CSR kernels with coalesced row caching."""

    name: ClassVar[str] = "gespmm"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_CSR, SDDMM_CSR)

    retired: ClassVar[Mapping[str, Any]] = {"coarsen": 0}

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        vector, lanes = vector_and_lanes(problem.width, problem.dtype)
        return too_wide(problem.width, lanes * vector)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload the matrix; the kernel comes from the cache or is compiled."""
        target = open_target(device)
        if problem.op is Op.SPMM:
            return csr_plan(problem, target, {})
        # By times measured on an H200 (docs/notes/gespmm.md): four non-zeros at once fill the registers, so that
        # float32 is loaded 8 bytes at a time, and few lanes leave few sums to add.
        vector = widest_load(problem.width, 8 if problem.dtype.narrow else 2, 8)
        lanes = 8 if problem.width <= 32 * vector else 16
        return SddmmPlan(problem, target, {}, vector=vector, lanes=lanes, batch=BATCH)
