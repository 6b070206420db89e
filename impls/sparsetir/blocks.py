"""SparseTIR's block formats on tensor cores: BSR, DBSR and SR-BCRS, 16 bits with float32 sums, tuned on the device.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
sections 4.3.1 (attention) and 4.3.2 (pruned Transformers). SparseTIR offers BSR(32), DBSR(32) and SR-BCRS(8, 16) for
pruned weights and searches the schedule. Here the shape of a block is searched as well: tall blocks read B less often
and store more zeros, and the better trade depends on the matrix. Where a grid would leave multiprocessors idle, block
rows are cut in parts. The paper's SR-BCRS(8, 16) is multiplied without shared memory, by the kernel of STile's block
tiles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, DeviceArray, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.bsr import BsrFormat, DbsrFormat, DenseBlocks, SrBcrsFormat
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.block_sddmm import BLOCK_SDDMM, SDDMM_BLOCKS, SDDMM_OVER_BLOCKS
from spmark.impls.kernels.block_spmm import (
    SPMM_BLOCKS,
    SPMM_STRIPS,
    STRIPS,
    BlockSpmmPlan,
    StripSpmmPlan,
    block_instance,
    strip_instance,
    vector_of,
)
from spmark.impls.kernels.family import Build, KernelFamily, OneFormat
from spmark.impls.kernels.shared_rows import ZERO_ROWS
from spmark.impls.kernels.tile_spmm import SPMM_TILES, TileSpmmPlan, tile_spmm_instance
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div, too_wide
from spmark.impls.runtime.template import Instance, KernelTemplate
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import key_of
from spmark.impls.tuning.strategies import along, exhaustive
from spmark.impls.tuning.tune import space_of, tune

BLOCKS: Sequence[Config] = [
    {"block_rows": rows, "block_cols": cols}
    for cols in (16, 32, 64, 128)
    for rows in (16, 32, 64, 96, 128)
    if cols <= rows and (rows == 16) == (cols == 16)
]
"""R and C of BSR(R, C), small blocks first; R is also the rows of a thread block, and a multiple stacks block rows."""
PANELS: Sequence[Config] = [{"t": t, "g": g} for t, g in ((8, 16), (16, 32), (32, 32), (32, 64), (64, 64))]
"""SR-BCRS(t, g), the paper's first and low panels first."""
ALONE = (4, 32)
"""Blocks of a block row that one warp takes by itself: four share a longer row."""
PARTS = (2, 4, 8)
"""Thread blocks that share the longest block row where the grid is small."""
_TURNED = 3
"""Best configs that are tried with turned starts."""
_FEW = 4
"""Thread blocks for each multiprocessor below which a grid is small."""
_PLAIN = {"turned": False, "parts": 1}
FORM = ("block_rows", "block_cols", "t", "g")
"""Tunables of the format."""


def block_space(problem: Problem, forms: Sequence[Config] = BLOCKS) -> list[Config]:
    """List the configs of BSR and DBSR: ``block_rows, block_cols, tile, depth, turned, parts``.

    Those of SR-BCRS have ``t, g`` in place of the sides; t = 8 has `tile_space` instead.
    """
    return [
        {**form, "tile": tile, "depth": _depth(problem, form), **_PLAIN}
        for form in forms
        if form != PANELS[0]
        for tile in _tiles(problem)
    ]


def tile_space(problem: Problem, forms: Sequence[Config] = PANELS) -> list[Config]:
    """List the configs of SR-BCRS(8, 16): ``t, g, columns, shallow, alone``, where 8 divides J."""
    if PANELS[0] not in forms or vector_of(problem.width) == 1:
        return []
    axes = product((8, 4), (False, True), ALONE)
    return [{**PANELS[0], "columns": columns, "shallow": shallow, "alone": alone} for columns, shallow, alone in axes]


def strip_space(problem: Problem, forms: Sequence[Config] = BLOCKS) -> list[Config]:
    """List the configs of BSR(16, 16) without shared memory: ``block_rows, block_cols, strips, tile``."""
    if BLOCKS[0] not in forms or vector_of(problem.width) == 1:
        return []
    return [{**BLOCKS[0], "strips": strips, "tile": tile} for strips in STRIPS for tile in (32, 64)]


def _tiles(problem: Problem) -> tuple[int, ...]:
    return (64, 128) if vector_of(problem.width) == 8 and problem.width > 64 else (64,)


def _depth(problem: Problem, form: Config) -> int:
    rows, cols = form.values()
    if vector_of(problem.width) == 1 or form == BLOCKS[0]:
        return 16
    return int(cols if "g" in form else min(cols, 64 if rows >= 64 else 32))


def middle(space: Sequence[Config]) -> Config:
    """Give the paper's config, BSR(32, 32) or SR-BCRS(8, 16), or the first config where pinning excludes it."""
    return next((one for one in space if any(form.items() <= one.items() for form in (BLOCKS[1], PANELS[0]))), space[0])


def varied(space: Sequence[Config]) -> Iterator[Config]:
    """Give the configs of a space with every value that `run_through` may try on them."""
    for config in space:
        for parts in (1, *PARTS) if "parts" in config else (0,):
            for turned in (False, True) if "turned" in config else (False,):
                yield {name: {"parts": parts, "turned": turned}.get(name, value) for name, value in config.items()}


def opened(problem: Problem, target: Target, convert: Callable[[Problem, Config], DenseBlocks]) -> Build:
    """Give what builds configs; plans of one format, which ``convert`` makes, share it."""

    def build(blocks: DenseBlocks, form: Config, schedule: Config, arrays: Sequence[DeviceArray]) -> DevicePlan:
        if "depth" in schedule:
            return BlockSpmmPlan(problem, target, blocks, form, arrays=arrays, **schedule)
        if "strips" in schedule:
            return StripSpmmPlan(problem, target, blocks, form, arrays=arrays, **schedule)
        return TileSpmmPlan(problem, target, TileFormat.of_blocks(blocks), form, arrays=arrays, **schedule)

    return OneFormat(FORM, lambda form: convert(problem, form), build)


def run_through(race: Race[Any], space: Sequence[Config], is_small: Callable[[Config], bool]) -> None:
    """Time every config, then configs of small grids with rows cut in parts, then the best few with turned starts."""
    timed = race.time_all(space)
    small = [config for config in space if "parts" in config and is_small(config)]
    timed += [race.time(along(race, config, "parts", PARTS)) for config in small]
    seen = {key_of(one.config): one for one in timed}
    ordered = sorted(seen.values(), key=lambda one: one.us)
    turnable = [one.config for one in ordered if "turned" in one.config]
    exhaustive(race, [{**config, "turned": True} for config in turnable[:_TURNED]])


def grid(problem: Problem, config: Config) -> int:
    """Count the thread blocks of a config without parts."""
    rows = config["t"] if "t" in config else config["block_rows"]
    return ceil_div(problem.matrix.num_rows, rows) * ceil_div(problem.width, config["tile"])


def block_kernel(problem: Problem, config: Config) -> Instance:
    """Give the kernel of a config."""
    if "columns" in config:
        return tile_spmm_instance(problem, config, mixed=False)
    if "strips" in config:
        return strip_instance(problem, config["tile"], config["strips"])
    rows = config["t"] if "t" in config else config["block_rows"]
    return block_instance(problem, rows, config["tile"], config["depth"], gathered="t" in config)


class TunedBlocks:
    """The base of the block formats: a space, a conversion, and the way from a search to a plan."""

    name: ClassVar[str]
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]]
    layout: ClassVar[type[BsrFormat | DbsrFormat | SrBcrsFormat]]
    every: ClassVar[Sequence[Config]]
    """Sizes of a block that are searched."""
    retired: ClassVar[Mapping[str, Any]] = {"tuned": True}

    def __post_init__(self) -> None:
        if not self.forms:
            raise ValueError(f"expected sizes of one of {self.every}, or 0 to search them, found {self}")

    @property
    def forms(self) -> list[Config]:
        """Sizes of a block that agree with those that are pinned."""
        return [form for form in self.every if all(getattr(self, name, 0) in {0, form[name]} for name in form)]

    @abstractmethod
    def space(self, problem: Problem) -> Sequence[Config]:
        """List the configs to choose from, formats with few stored elements first."""

    def convert(self, problem: Problem, config: Config) -> DenseBlocks:
        """Give the matrix in the format of a config."""
        return self.layout.from_csr(problem.matrix, *(config[name] for name in self.every[0]))

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> DenseBlocks:
        """Convert as a plan does."""
        if problem.op is Op.SDDMM:
            return BsrFormat.from_csr(problem.matrix, config["block"], config["block"])
        return self.convert(problem, config)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, which the matrix unit would round to tf32, and widths beyond the grid."""
        if not problem.dtype.narrow:
            return f"expected 16-bit floats (the matrix unit takes float32 only rounded to tf32), found {problem.dtype}"
        return too_wide(problem.width, 64)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where several configs and a device to measure on exist, then convert and upload."""
        space, few = self.space(problem), _FEW * device.num_sms
        family = KernelFamily(
            mark=next(iter(self.every[0])),
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
            measured=len(space) > 1,
        )


@dataclass(frozen=True)
class SparseTirDbsr(TunedBlocks):
    """SpMM over the block rows of BSR(R, C) that have blocks; a kernel before it clears all other rows of C."""

    name: ClassVar[str] = "sparsetir_dbsr"
    layout: ClassVar[type[BsrFormat | DbsrFormat | SrBcrsFormat]] = DbsrFormat
    every = BLOCKS
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_BLOCKS, ZERO_ROWS)

    block_rows: int = 0
    """R: 16, 32, 64, 96 or 128 rows; 0 searches. SDDMM has square blocks of 16 or 32."""
    block_cols: int = 0
    """C: 16 (with R = 16), 32, 64 or 128 columns, at most R; 0 searches."""

    def space(self, problem: Problem) -> Sequence[Config]:
        """List blocks and tiles."""
        return block_space(problem, self.forms)


class SparseTirBsr(SparseTirDbsr):
    """SpMM over BSR(R, C), whose kernel also writes zeros into rows of C without blocks, and SDDMM."""

    name: ClassVar[str] = "sparsetir_bsr"
    layout = BsrFormat
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_BLOCKS, SPMM_STRIPS, ZERO_ROWS, BLOCK_SDDMM)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, widths beyond the grid, and blocks for which SDDMM has no kernel."""
        if problem.op is Op.SDDMM and not self._squares:
            sizes = " or ".join(map(str, SDDMM_BLOCKS))
            return f"expected square blocks of {sizes} for SDDMM, found {self.block_rows} x {self.block_cols}"
        return super().unsupported(problem, device)

    @property
    def _squares(self) -> list[int]:
        """Blocks of SDDMM."""
        return [size for size in SDDMM_BLOCKS if {"block_rows": size, "block_cols": size} in self.forms]

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where several configs and a device to measure on exist, then convert and upload."""
        if problem.op is Op.SPMM:
            return super().build(problem, device)
        pinned = {"block": self._squares[0]} if len(self._squares) == 1 else {}
        return tune(
            problem,
            device,
            [SDDMM_OVER_BLOCKS],
            lambda race: exhaustive(race, space_of(SDDMM_OVER_BLOCKS, problem, pinned).configs()),
            owner="sparsetir",
            pinned=pinned,
            facts={"form": "bsr"},  # apart from the two-stage kernel's search
        )

    def space(self, problem: Problem) -> Sequence[Config]:
        """List blocks and tiles, and configs without shared memory."""
        return [*super().space(problem), *strip_space(problem, self.forms)]


@dataclass(frozen=True)
class SparseTirSrBcrs(TunedBlocks):
    """SpMM over SR-BCRS(t, g): panels of t rows with condensed columns."""

    name: ClassVar[str] = "sparsetir_srbcrs"
    layout, every = SrBcrsFormat, PANELS
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_BLOCKS, SPMM_TILES, ZERO_ROWS)

    t: int = 0
    """Rows of a panel: 8 (the paper's), 16, 32 or 64; 0 searches."""

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, widths beyond the grid, and other J than multiples of 8 for panels of 8 rows."""
        if self.t == PANELS[0]["t"] and vector_of(problem.width) == 1:
            return f"expected J a multiple of 8 for panels of {self.t} rows, found {problem.width}"
        return super().unsupported(problem, device)

    def space(self, problem: Problem) -> Sequence[Config]:
        """List panels, groups and tiles, the configs without shared memory first."""
        return [*tile_space(problem, self.forms), *block_space(problem, self.forms)]
