"""cuSPARSE: SpMM with every CSR algorithm, with and without preprocess, and unscaled SDDMM, row-major; block formats.

`CuSparse` calls the library with its defaults, as most users do; `CuSparseBest` measures every variant and keeps the
fastest. `CuSparseBell` and `CuSparseBsr` cut the matrix into square blocks. The plan owns descriptors and buffers, and
preprocessing is a phase of building.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.stores import Held, StoreKind
from spmark.impls.cusparse.blocks import blocked_ell
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import ELEMENTS, KernelTemplate

THREADS = 256
GATHER = KernelTemplate(
    Path(__file__).parent / "kernels" / "gather.cu",
    "gather_slots",
    {"T": ELEMENTS, "scaled": (False, True), "threads": (THREADS,)},
    max_registers=40,
)
BLOCKS = (16, 32)
"""Block sizes to choose from: those of the papers' experiments with these formats."""


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
    """One call of the library with its default algorithm."""

    name: ClassVar[str] = "cusparse"

    retired: ClassVar[Mapping[str, Any]] = {"algorithm": "default", "column_major": False}

    preprocess: bool = False
    """Call the library's preprocess while building."""

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Describe, allocate and preprocess."""
        from spmark.impls.cusparse.gpu import CuSparsePlan

        return CuSparsePlan(problem, open_target(device), "default", self.preprocess)


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
class CuSparseBell(_Library):
    """SpMM over Blocked-ELL, which the library computes on matrix units, in the blocks of `BLOCKS` that store least.

    Of equals the larger are taken, which are faster.
    """

    name: ClassVar[str] = "cusparse_bell"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    retired: ClassVar[Mapping[str, Any]] = {"block": 0}

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> list[Held]:
        """Cut A into the blocks of a config, and pad block rows."""
        size = config["block"]
        _, values = blocked_ell(BsrFormat.from_csr(problem.matrix, size, size))
        return [Held(StoreKind.BLOCK, f"blocks of {size} x {size}", values.size)]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse problems that the interface cannot express, and float32, which the library rounds to TF32."""
        if not problem.dtype.narrow:
            return "expected 16-bit floats: in float32 cuSPARSE's Blocked-ELL rounds operands to TF32"
        return super().unsupported(problem, device)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Cut into blocks, pad block rows to one length, upload."""
        from spmark.impls.cusparse.gpu import BlockPlan

        return BlockPlan(problem, open_target(device), ell=True, blocks=BLOCKS[::-1])


@dataclass(frozen=True)
class CuSparseBsr(_Library):
    """SpMM and SDDMM over BSR, in the blocks of `BLOCKS` that store least; of equals the smaller, which are faster."""

    name: ClassVar[str] = "cusparse_bsr"
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (GATHER,)
    retired: ClassVar[Mapping[str, Any]] = {"block": 0}

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> BsrFormat:
        """Cut A into the blocks of a config."""
        return BsrFormat.from_csr(problem.matrix, config["block"], config["block"])

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse a matrix without non-zeros, as with CSR, and SDDMM where every block size leaves a rest of J."""
        if reason := super().unsupported(problem, device):
            return reason
        if not self._fitting(problem):
            sizes = " or ".join(map(str, BLOCKS))
            return f"cuSPARSE's SDDMM over BSR takes J that the block divides: block {sizes}, J = {problem.width}"
        return None

    def _fitting(self, problem: Problem) -> tuple[int, ...]:
        return tuple(size for size in BLOCKS if problem.op is Op.SPMM or problem.width % size == 0)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Cut into blocks and upload."""
        from spmark.impls.cusparse.gpu import BlockPlan

        return BlockPlan(problem, open_target(device), ell=False, blocks=self._fitting(problem))
