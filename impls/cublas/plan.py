"""cuBLAS on the dense form of A, which sparse kernels have to beat.

SpMM is one GEMM; SDDMM is a GEMM and a read at A's non-zeros. float32 stays float32 (no TF32); float16 accumulates in
float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.stores import Held, StoreKind
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import ELEMENTS, KernelTemplate

THREADS = 256
SAMPLE = KernelTemplate(
    Path(__file__).parent / "kernels" / "sample.cu",
    "sample_dense",
    {"T": ELEMENTS, "scaled": (False, True), "threads": (THREADS,)},
)


@dataclass(frozen=True)
class CuBlas:
    """Dense GEMM."""

    name: ClassVar[str] = "cublas"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SAMPLE,)

    max_dense_bytes: int = 8 << 30
    """Most bytes of the dense I x K matrix."""

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> list[Held]:
        """Store A as a dense matrix."""
        return [Held(StoreKind.BLOCK, "dense matrix", math.prod(problem.matrix.shape))]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse a dense form beyond the limit."""
        num_rows, num_cols = problem.matrix.shape
        itemsize = problem.dtype.itemsize if problem.op is Op.SPMM else 4  # SDDMM's product stays in float32
        needed, most = num_rows * num_cols * itemsize, self.max_dense_bytes
        told = f"the dense {num_rows} x {num_cols} matrix takes {needed:,} bytes, the limit is {most:,}"
        return told if needed > most else None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Densify and upload."""
        from spmark.impls.cublas.gpu import DenseSddmm, DenseSpmm

        return (DenseSpmm if problem.op is Op.SPMM else DenseSddmm)(problem, open_target(device))


@dataclass(frozen=True)
class CuBlasLtBest(CuBlas):
    """The fastest algorithm that cuBLASLt proposes for SpMM's product, measured from a cold cache while building."""

    name: ClassVar[str] = "cublaslt_best"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = ()

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Densify, upload, race the algorithms.

        Raises
        ------
        UnsupportedError
            cuBLASLt cannot be loaded, or has no algorithm for the problem.
        """
        from spmark.impls.cublas.gpu import build_light_best

        return build_light_best(problem, open_target(device))
