"""A kernel of one's own, outside of spmark: SpMM over CSR, one thread for each element, and row by row on the CPU.

Check it, then measure it beside a baseline; this folder may stand anywhere::

    spmark check examples/mykernel/mykernel.py:MyKernel
    spmark run --matrix patterns/logsparse_256 --width 64 --implementation examples/mykernel/mykernel.py:MyKernel
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operands import HostPlan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, open_target
from spmark.impls.runtime.template import C_TYPES, KernelTemplate

# A file beside this one counts into the version of the records.
SPMM_NAIVE = KernelTemplate(
    Path(__file__).parent / "spmm_naive.cu",
    "spmm_naive",
    {"T": tuple(C_TYPES.values()), "threads": (128, 256)},
)


@dataclass(frozen=True)
class MyKernel:
    """The plainest SpMM: one thread for each element of C, or one row after the other on the CPU.

    Raises
    ------
    ValueError
        ``threads`` is neither 128 nor 256.
    """

    name: ClassVar[str] = "mykernel"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU, DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_NAIVE,)

    threads: int = 256
    """Threads of a block; a sweep may pin it by ``config: {threads: 128}``."""

    def __post_init__(self) -> None:
        if self.threads not in SPMM_NAIVE.space["threads"]:
            raise ValueError(f"expected threads out of 128, 256, found {self.threads}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse what has more blocks than a grid."""
        blocks = problem.matrix.num_rows * problem.width // self.threads
        return None if blocks < 2**31 - 1 else f"expected at most 2**31 - 1 blocks, found {blocks:,}"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Use the matrix as it comes."""
        if device.kind is DeviceKind.CPU:
            return RowLoopPlan(problem)
        return ElementPlan(problem, open_target(device), self.threads)


class RowLoopPlan(HostPlan):
    """C = A B on the CPU, one row after the other."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(stored=problem.matrix.nnz)
        self._indptr, self._indices = problem.matrix.indptr, problem.matrix.indices
        with self.phase("convert"):
            self._values = problem.dtype.numbers(problem.values).astype(np.float32, copy=False)
            self.hold(problem, self._values)

    def compute(self, dense: NDArray[np.float32], result: NDArray[np.float32]) -> None:
        """Write every row of C, also those that A leaves empty."""
        for row, (start, stop) in enumerate(zip(self._indptr[:-1], self._indptr[1:], strict=True)):
            np.matmul(self._values[start:stop], dense[self._indices[start:stop]], out=result[row])


class ElementPlan(OneLaunchPlan):
    """C = A B by `SPMM_NAIVE`, on a GPU or on the host ring."""

    def __init__(self, problem: Problem, target: Target, threads: int) -> None:
        super().__init__(problem, target, {"threads": threads})
        matrix = problem.matrix
        self._load(SPMM_NAIVE.instance(T=C_TYPES[problem.dtype], threads=threads))
        blocks = -(-matrix.num_rows * problem.width // threads)
        self._arrange((blocks, 1, 1), (matrix.num_rows, problem.width), (matrix.indptr, matrix.indices, problem.values))
