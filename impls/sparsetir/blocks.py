"""SparseTIR's block formats on tensor cores: BSR, DBSR and SR-BCRS, float16 with float32 sums, tuned on the device.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
sections 4.3.1 (attention) and 4.3.2 (pruned Transformers).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.bsr import BsrFormat, DenseBlocks
from spmark.impls.formats.dbsr import DbsrFormat
from spmark.impls.formats.srbcrs import SrBcrsFormat
from spmark.impls.kernels.block_sddmm import BLOCK_SDDMM, SDDMM_BLOCKS, SDDMM_OVER_BLOCKS
from spmark.impls.kernels.block_spmm import SPMM_BLOCKS
from spmark.impls.kernels.family import KernelFamily
from spmark.impls.kernels.panel_spmm import SPMM_PANELS
from spmark.impls.kernels.strip_spmm import SPMM_STRIPS
from spmark.impls.kernels.zeroing import ZERO_ROWS
from spmark.impls.runtime.target import MAX_GRID
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.sparsetir.block_search import (
    COLS,
    PANELS,
    ROWS,
    block_kernel,
    block_space,
    grid,
    middle,
    opened,
    panel_space,
    run_through,
    strip_space,
    varied,
)
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.tune import space_of, tune

_FEW = 4
"""Thread blocks for each multiprocessor below which a grid is small."""
_WIDEST = 64 * MAX_GRID[1]


class TunedBlocks:
    """The base of the block formats: a space, a conversion, and the way from a search to a plan."""

    name: ClassVar[str]
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]]

    tuned: bool

    @abstractmethod
    def space(self, problem: Problem) -> Sequence[Config]:
        """List the configs to choose from, formats with few stored elements first."""

    @abstractmethod
    def convert(self, problem: Problem, config: Config) -> DenseBlocks:
        """Give the matrix in the format of a config."""

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> DenseBlocks:
        """Convert as a plan does."""
        if problem.op is Op.SDDMM:
            return BsrFormat.from_csr(problem.matrix, config["block"], config["block"])
        return self.convert(problem, config)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, which the matrix unit would round to tf32, and widths beyond the grid."""
        if problem.dtype is not DType.FLOAT16:
            return f"expected float16 (the matrix unit takes float32 only rounded to tf32), found {problem.dtype}"
        if problem.width > _WIDEST:
            return f"expected J of at most {_WIDEST}, found {problem.width}"
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where several configs and a device to measure on exist, then convert and upload."""
        space, few = self.space(problem), _FEW * device.num_sms
        family = KernelFamily(
            mark="tile",
            templates=self.kernels,
            axes=lambda problem, _: {"config": list(varied(space))},
            opened=lambda problem, target: opened(problem, target, self.convert),
            default=lambda problem, _: middle(space),
            kernel=block_kernel,
        )
        return tune(
            problem,
            device,
            [family],
            lambda race: run_through(race, space, lambda config: grid(problem, config) < few),
            owner="sparsetir",
            facts={"format": self.name, "space": space},
            measured=self.tuned and len(space) > 1,
        )


@dataclass(frozen=True)
class _RectangularBlocks(TunedBlocks):
    """The base of BSR(R, C) and DBSR(R, C)."""

    block_rows: int = 0
    """R: 16, 32, 64, 96 or 128 rows; 0 searches. A multiple of the block rows' height stacks them. SDDMM has square
    blocks of 16 or 32, so that either of the two sizes pins both."""
    block_cols: int = 0
    """C: 16 (with R = 16), 32, 64 or 128 columns; 0 searches."""
    tuned: bool = True
    """Measure on the device; otherwise take the pinned blocks, or 32 x 32."""

    def __post_init__(self) -> None:
        rows, cols = self.block_rows, self.block_cols
        if rows not in (0, *ROWS) or cols not in (0, *COLS) or (cols == 16 and rows not in (0, 16)):
            raise ValueError(
                f"expected block_rows out of {ROWS} and block_cols out of {COLS}, 16 columns with 16 rows only, or 0 "
                f"to search them, found {rows} and {cols}"
            )

    def space(self, problem: Problem) -> Sequence[Config]:
        """List blocks and tiles."""
        return block_space(problem, self.block_rows, self.block_cols)


class SparseTirBsr(_RectangularBlocks):
    """SpMM over BSR(R, C), whose kernel also writes zeros into rows of C without blocks, and SDDMM."""

    name: ClassVar[str] = "sparsetir_bsr"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_BLOCKS, SPMM_STRIPS, ZERO_ROWS, BLOCK_SDDMM)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, widths beyond the grid, and blocks for which SDDMM has no kernel."""
        if problem.op is Op.SDDMM and self._sizes() not in [set(), *({size} for size in SDDMM_BLOCKS)]:
            sizes = " or ".join(map(str, SDDMM_BLOCKS))
            return f"expected square blocks of {sizes} for SDDMM, found {self.block_rows} x {self.block_cols}"
        return super().unsupported(problem, device)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where several configs and a device to measure on exist, then convert and upload."""
        if problem.op is Op.SPMM:
            return super().build(problem, device)
        size = max(self.block_rows, self.block_cols)
        pinned = {"block": size} if size else {}
        return tune(
            problem,
            device,
            [SDDMM_OVER_BLOCKS],
            lambda race: exhaustive(race, space_of(SDDMM_OVER_BLOCKS, problem, pinned).configs()),
            owner="sparsetir",
            pinned=pinned,
            facts={"form": BsrFormat.name},  # apart from the two-stage kernel's search
            measured=self.tuned,
        )

    def _sizes(self) -> set[int]:
        """Give the pinned sizes."""
        return {self.block_rows, self.block_cols} - {0}

    def space(self, problem: Problem) -> Sequence[Config]:
        """List blocks and tiles, and configs without shared memory."""
        return [*super().space(problem), *strip_space(problem, self.block_rows, self.block_cols)]

    def convert(self, problem: Problem, config: Config) -> BsrFormat:
        """Cut into blocks."""
        return BsrFormat.from_csr(problem.matrix, config["block_rows"], config["block_cols"])


class SparseTirDbsr(_RectangularBlocks):
    """SpMM over the block rows of BSR(R, C) that have blocks; a kernel before it clears all other rows of C."""

    name: ClassVar[str] = "sparsetir_dbsr"
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_BLOCKS, ZERO_ROWS)

    def convert(self, problem: Problem, config: Config) -> DbsrFormat:
        """Cut into blocks and list the block rows that have blocks."""
        return DbsrFormat.from_csr(problem.matrix, config["block_rows"], config["block_cols"])


@dataclass(frozen=True)
class SparseTirSrBcrs(TunedBlocks):
    """SpMM over SR-BCRS(t, g): panels of t rows with condensed columns."""

    name: ClassVar[str] = "sparsetir_srbcrs"
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_PANELS, SPMM_BLOCKS, ZERO_ROWS)

    t: int = 0
    """Rows of a panel: 8 (the paper's), 16, 32 or 64; 0 searches."""
    tuned: bool = True
    """Measure on the device; otherwise take the pinned panel, or the paper's SR-BCRS(8, 16)."""

    def __post_init__(self) -> None:
        heights = sorted({rows for rows, _ in PANELS})
        if self.t not in (0, *heights):
            raise ValueError(f"expected t out of {heights}, or 0 to search it, found {self.t}")

    def space(self, problem: Problem) -> Sequence[Config]:
        """List panels, groups and tiles."""
        return panel_space(problem, self.t)

    def convert(self, problem: Problem, config: Config) -> SrBcrsFormat:
        """Condense the columns of panels."""
        return SrBcrsFormat.from_csr(problem.matrix, config["t"], config["g"])
