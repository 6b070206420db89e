"""Which tile sizes cannot be good on a device, without compiling or running anything (LO-SpMM, sections 3.2 to 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.space import MOST_THREADS, TileSize
from spmark.impls.runtime.target import ceil_div

MOST_COV_ROW = 0.25
MOST_WASTE_COL = 0.25
STAGES = ("space", "registers", "utilisation", "balance")
"""The whole space, then the constraints in the order in which they are applied."""
REGISTER_GRANULE = 8
"""The hardware hands out registers of a thread in eights (256 to a warp)."""
SUB_PARTITIONS = 4
"""Parts of a multiprocessor, each with a quarter of its registers and of a thread block's warps; since sm_70."""
_CROWDED = 96


@dataclass(frozen=True)
class Limits:
    """Limits of a device and of the generated code that the constraints ask for."""

    registers_per_thread: int
    registers_per_block: int
    threads_per_block: int
    warp_size: int
    num_sms: int
    fixed_registers: int
    """Registers of a thread beside sums and loaded elements: addresses, and what the compiler keeps."""
    register_granule: int = 1
    """How many registers of a thread are handed out at once."""
    sub_partitions: int = 1
    """Parts of a multiprocessor; the registers of a warp lie in one part."""

    @classmethod
    def of(cls, device: DeviceSpec) -> Limits:
        """Take an NVIDIA GPU's: 255 registers a thread and 1,024 threads a block on every architecture since sm_35."""
        limits = 255, device.registers_per_sm, MOST_THREADS, device.warp_size, device.num_sms
        return cls(*limits, 12, REGISTER_GRANULE, SUB_PARTITIONS)

    def most_warps(self, registers: int) -> int:
        """Give the warps that fit a multiprocessor side by side, by the registers of a thread.

        Each sub-partition holds whole warps. With 200 registers a thread it has room for two and a half: a thread block
        of ten warps cannot be launched, though the multiprocessor has enough registers.
        """
        of_warp = ceil_div(max(1, registers), self.register_granule) * self.register_granule * self.warp_size
        return self.sub_partitions * (self.registers_per_block // self.sub_partitions // of_warp)


@dataclass(frozen=True)
class Survivors:
    """Tile sizes that passed the constraints."""

    sizes: tuple[TileSize, ...]
    counts: Mapping[str, int]
    """Tile sizes left after each of `STAGES`, as in the paper's figure 3."""
    relaxed: str = ""
    """The stage that no tile size passed, if there is one: `sizes` are then those before this stage."""
    balance: Mapping[int, float] = field(default_factory=dict)
    """COV_row of every M1 that was asked for."""

    def joined(self, more: Survivors) -> Survivors:
        """Add the survivors of another part of the space, unless a constraint was waived for that part."""
        counts = {stage: count + more.counts[stage] for stage, count in self.counts.items()}
        sizes = self.sizes if more.relaxed else self.sizes + more.sizes
        return Survivors(sizes, counts, self.relaxed, {**more.balance, **self.balance})


def estimate_registers(tile_rows: int, cpt: int, prefetch: int, fixed: int = 12) -> int:
    """Give the registers of a thread: its sums, the elements of B in flight, and the rest.

    Vectors want registers in a row, at a multiple of their length. For that the assembler leaves unused or copies 15 %
    with four columns, and with two columns once sums and elements are more than 96 (ptxas 13.0, sm_90).
    """
    elements = cpt * (tile_rows + prefetch)
    crowded = cpt == 4 or (cpt == 2 and elements > _CROWDED)
    return ceil_div(23 * elements, 20) + fixed if crowded else elements + fixed


def register_cap(tile_rows: int, cpt: int, prefetch: int) -> int:
    """Give the cap for the compiler: the estimate, rounded up to a number that the hardware hands out; at most 255."""
    estimate = estimate_registers(tile_rows, cpt, prefetch)
    return min(255, ceil_div(estimate, REGISTER_GRANULE) * REGISTER_GRANULE)


def cov_row(tile_nnz: NDArray[np.int64]) -> float:
    """Give the coefficient of variation of the non-zeros of the row tiles; 0 without tiles."""
    mean = float(tile_nnz.mean()) if tile_nnz.size else 0.0
    return float(tile_nnz.std()) / mean if mean else 0.0


def waste_col(width: int, tile_width: int) -> float:
    """Give the share of columns that thread blocks cover beyond J."""
    covered = ceil_div(width, tile_width) * tile_width
    return (covered - width) / covered


def survivors(
    sizes: Iterable[TileSize],
    num_rows: int,
    width: int,
    limits: Limits,
    *,
    depth: Callable[[int, int], int],
    tile_nnz: Callable[[int], NDArray[np.int64]],
) -> Survivors:
    """Apply the three constraints one after the other.

    Where a constraint would leave nothing (a small problem cannot fill half of a large GPU), this constraint and those
    after it are waived, and `Survivors.relaxed` names it.

    Parameters
    ----------
    sizes : iterable of TileSize
        The space.
    num_rows : int
        Rows of A that are not empty.
    width : int
        J.
    depth : callable
        Elements of B in flight for each column of a thread, by M1 and the number of these columns.
    tile_nnz : callable
        Non-zeros of every row tile for an M1, after reordering; asked once for each M1 that gets so far.
    """

    def registers(size: TileSize) -> bool:
        needed = estimate_registers(size.tile_rows, size.cpt, depth(size.tile_rows, size.cpt), limits.fixed_registers)
        warps = ceil_div(size.block_threads, limits.warp_size)
        return needed <= limits.registers_per_thread and warps <= limits.most_warps(needed)

    def utilisation(size: TileSize) -> bool:
        whole_warps = size.threads % limits.warp_size == 0 and size.block_threads <= limits.threads_per_block
        row_blocks = ceil_div(ceil_div(num_rows, size.tile_rows) * size.split, size.tiles_per_block)
        blocks = row_blocks * ceil_div(width, size.tile_width)
        return whole_warps and 2 * blocks >= limits.num_sms

    spread: dict[int, float] = {}

    def balance(size: TileSize) -> bool:
        if waste_col(width, size.tile_width) > MOST_WASTE_COL:
            return False
        if size.tile_rows not in spread:
            spread[size.tile_rows] = cov_row(tile_nnz(size.tile_rows))
        return spread[size.tile_rows] <= MOST_COV_ROW

    left = tuple(sizes)
    counts = {STAGES[0]: len(left)}
    relaxed = ""
    for name, keeps in zip(STAGES[1:], (registers, utilisation, balance), strict=True):
        kept = tuple(size for size in left if keeps(size)) if not relaxed else ()
        counts[name] = len(kept)
        if kept:
            left = kept
        else:
            relaxed = relaxed or name
    return Survivors(left, counts, relaxed, spread)
