"""SDDMM over coordinates in the manner of dgSPARSE: a baseline with a fixed schedule, written for this project.

dgSPARSE-Lib, https://github.com/dgSPARSE/dgSPARSE-Lib, ``src/sddmm``; Yu et al., "Exploiting Online Locality and
Reduction Parallelism for Sampled Dense Matrix Multiplication on GPUs", ICCD 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, open_target
from spmark.impls.runtime.template import KernelTemplate, loads_of

BLOCK = 16
"""Non-zeros of a block."""
_MOST_ELEMENTS = 4
"""Elements of the widest load, 16 bytes."""
_THREADS = {vector: 128 // vector for vector in (1, 2, 4)}
"""Threads of a block by the elements of a load: four groups that read 32 columns at once."""


SDDMM_COO = KernelTemplate(
    Path(__file__).parent / "kernels" / "sddmm_coo.cu",
    "sddmm_coo",
    {"vector": tuple(_THREADS), "threads": tuple(_THREADS.values())},
)


class CooSddmmPlan(OneLaunchPlan):
    """D = (X Y^T at A's non-zeros) by `SDDMM_COO`; the array of rows is made in the phase ``convert``."""

    def __init__(self, problem: Problem, target: Target) -> None:
        matrix = problem.matrix
        (vector, *_) = loads_of(problem.width, _MOST_ELEMENTS)
        super().__init__(problem, target, {"vector": vector}, alignment=_MOST_ELEMENTS * problem.dtype.itemsize)
        self._load(SDDMM_COO.instance(vector=vector, threads=_THREADS[vector]))
        with self.phase("convert"):
            rows = matrix.rows_of_entries()
        grid = (matrix.nnz // BLOCK + matrix.nnz % BLOCK, 1, 1)
        self._arrange(grid, (matrix.nnz, problem.width), (rows, matrix.indices))


@dataclass(frozen=True)
class DgSparse:
    """dgSPARSE's schedule for SDDMM over coordinates: loads by J, four non-zeros a group, no search."""

    name: ClassVar[str] = "dgsparse"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SDDMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SDDMM_COO,)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float16 and scaling, which dgSPARSE's kernel does not compute."""
        if problem.dtype is not DType.FLOAT32:
            return f"expected float32, which dgSPARSE's SDDMM computes in, found {problem.dtype}"
        if problem.scaled:
            return "dgSPARSE's SDDMM does not multiply by A"
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Expand the rows and upload."""
        return CooSddmmPlan(problem, open_target(device))
