"""SDDMM with FeatGraph's schedule, which DGL runs on GPUs: it stands for DGL where DGL has no CUDA build.

Hu et al., "FeatGraph: A Flexible and Efficient Backend for Graph Neural Network Systems", SC 2020. Written for this
project.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div, open_target
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, KernelTemplate

WARP = 32
"""Threads of a non-zero from this J on; below, one thread takes a non-zero."""
_THREADS = {1: 1024, WARP: 256}
"""Threads of a block by those of a non-zero."""


EDGE_SDDMM = KernelTemplate(
    Path(__file__).parent / "kernels" / "edge_sddmm.cu",
    "edge_sddmm",
    {"T": ELEMENTS, "lanes": tuple(_THREADS), "threads": tuple(_THREADS.values())},
)


class EdgeSddmmPlan(OneLaunchPlan):
    """D = (X Y^T at A's non-zeros) by `EDGE_SDDMM`; the array of rows is made in the phase ``convert``."""

    def __init__(self, problem: Problem, target: Target) -> None:
        matrix = problem.matrix
        lanes = WARP if problem.width >= WARP else 1
        super().__init__(problem, target, {"lanes": lanes}, alignment=problem.dtype.itemsize)
        threads = _THREADS[lanes]
        self._load(EDGE_SDDMM.instance(T=C_TYPES[problem.dtype], lanes=lanes, threads=threads))
        with self.phase("convert"):
            rows = matrix.rows_of_entries()
        grid = (ceil_div(matrix.nnz, threads // lanes), 1, 1)
        self._arrange(grid, (matrix.nnz, problem.width), (rows, matrix.indices))


@dataclass(frozen=True)
class FeatGraph:
    """A warp for each non-zero, with a tree reduction over J; no search."""

    name: ClassVar[str] = "featgraph"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SDDMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (EDGE_SDDMM,)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse scaling, which DGL's u_dot_v does not do either."""
        return "u_dot_v, whose schedule this is, does not multiply by A" if problem.scaled else None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Expand the rows and upload."""
        return EdgeSddmmPlan(problem, open_target(device))
