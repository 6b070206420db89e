"""cuSPARSE: SpMM with every CSR algorithm, with and without preprocess, and unscaled SDDMM, row-major; block formats.

`CuSparse` calls the library with its defaults, as most users do; `CuSparseBest` measures every variant and keeps the
fastest. `CuSparseBell` and `CuSparseBsr` cut the matrix into square blocks. The plan owns descriptors and buffers, and
preprocessing is a phase of building.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.stores import Held, StoreKind
from spmark.impls.cusparse.blocks import blocked_ell
from spmark.impls.cusparse.library import ALGORITHMS
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import KernelTemplate

THREADS = 256
GATHER = KernelTemplate(
    Path(__file__).parent / "kernels" / "gather.cu",
    "gather_slots",
    {"T": ("float", "half"), "scaled": (False, True), "threads": (THREADS,)},
    max_registers=40,
)
BLOCKS = (16, 32)
"""Block sizes to choose from: those of the papers' experiments with these formats."""
SIZES = (2, 4, 8, 16, 32, 64, 128)
"""Block sizes that may be pinned: those that cuSPARSE documents for SDDMM over BSR."""


class _Library:
    """What all of them have in common."""

    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = ()

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse problems that the library's interface cannot express."""
        if problem.scaled and not self.kernels:  # our own kernel alone multiplies by A
            return "cuSPARSE's SDDMM does not multiply by A"
        return None if problem.matrix.nnz else "cuSPARSE takes no matrix without non-zeros"


@dataclass(frozen=True)
class CuSparse(_Library):
    """One call of the library, defaults unless pinned."""

    name: ClassVar[str] = "cusparse"

    algorithm: str = "default"
    """SpMM's CSR algorithm: default, alg1, alg2 or alg3."""
    preprocess: bool = False
    """Call the library's preprocess while building."""
    column_major: bool = False
    """SDDMM: describe Y as a J x K matrix in column-major order, not transposed: the same memory, another kernel."""

    def __post_init__(self) -> None:
        check_choices(self, algorithm=ALGORITHMS)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse problems that the library's interface cannot express."""
        if self.column_major and problem.op is not Op.SDDMM:
            return f"expected sddmm, whose Y column_major describes, found {problem.op}: leave column_major out"
        return super().unsupported(problem, device)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Describe, allocate and preprocess."""
        from spmark.impls.cusparse.gpu import CuSparsePlan

        target = open_target(device)
        return CuSparsePlan(problem, target, self.algorithm, self.preprocess, column_major=self.column_major)


@dataclass(frozen=True)
class CuSparseBest(_Library):
    """The fastest of every algorithm with and without preprocess, measured from cold caches while building."""

    name: ClassVar[str] = "cusparse_best"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Build every variant on one upload, race them, keep the fastest.

        Raises
        ------
        UnsupportedError
            Every variant refuses the problem; the error carries the library's words for each.
        """
        from spmark.impls.cusparse.gpu import build_best

        return build_best(problem, open_target(device))


@dataclass(frozen=True)
class _Blocks(_Library):
    """The library's formats of square blocks."""

    block: int = 0

    def __post_init__(self) -> None:
        check_choices(self, block=(0, *SIZES))


@dataclass(frozen=True)
class CuSparseBell(_Blocks):
    """SpMM over Blocked-ELL, which the library computes on matrix units."""

    name: ClassVar[str] = "cusparse_bell"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})

    block: int = 0
    """Rows and columns of a block; 0 takes the size of `BLOCKS` that stores least, the larger (faster) of equals."""

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> list[Held]:
        """Cut A into the blocks of a config, and pad block rows."""
        size = config["block"]
        _, values = blocked_ell(BsrFormat.from_csr(problem.matrix, size, size))
        return [Held(StoreKind.BLOCK, f"blocks of {size} x {size}", values.size)]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse problems that the interface cannot express, and float32, which the library rounds to TF32."""
        if problem.dtype is not DType.FLOAT16:
            return "expected float16: in float32 cuSPARSE's Blocked-ELL rounds operands to TF32"
        return super().unsupported(problem, device)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Cut into blocks, pad block rows to one length, upload."""
        from spmark.impls.cusparse.gpu import BlockPlan

        sizes = (self.block,) if self.block else BLOCKS[::-1]
        return BlockPlan(problem, open_target(device), ell=True, blocks=sizes)


@dataclass(frozen=True)
class CuSparseBsr(_Blocks):
    """SpMM and SDDMM over BSR."""

    name: ClassVar[str] = "cusparse_bsr"
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (GATHER,)

    block: int = 0
    """Rows and columns of a block; 0 takes the size of `BLOCKS` that stores least, the smaller (faster) of equals."""

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> BsrFormat:
        """Cut A into the blocks of a config."""
        return BsrFormat.from_csr(problem.matrix, config["block"], config["block"])

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse a matrix without non-zeros, as with CSR, and SDDMM where every block size leaves a rest of J."""
        if reason := super().unsupported(problem, device):
            return reason
        if not self._fitting(problem):
            sizes = " or ".join(map(str, (self.block,) if self.block else BLOCKS))
            return f"cuSPARSE's SDDMM over BSR takes J that the block divides: block {sizes}, J = {problem.width}"
        return None

    def _fitting(self, problem: Problem) -> tuple[int, ...]:
        sizes = (self.block,) if self.block else BLOCKS
        return tuple(size for size in sizes if problem.op is Op.SPMM or problem.width % size == 0)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Cut into blocks and upload."""
        from spmark.impls.cusparse.gpu import BlockPlan

        return BlockPlan(problem, open_target(device), ell=False, blocks=self._fitting(problem))
