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
"""In the order in which they are applied; the first is the whole space."""
REGISTER_GRANULE = 8
"""Registers of a thread are handed out in eights (256 of a warp)."""
SUB_PARTITIONS = 4
"""Of a multiprocessor, each with a quarter of the registers and of the warps of a thread block; since sm_70."""
_CROWDED = 96


@dataclass(frozen=True)
class Limits:
    """What the constraints need to know of a device and of the generated code."""

    registers_per_thread: int
    registers_per_block: int
    threads_per_block: int
    warp_size: int
    num_sms: int
    fixed_registers: int
    """Of a thread beside sums and loaded elements: addresses, and what the compiler keeps."""
    register_granule: int = 1
    """Registers of a thread are handed out in so many at once."""
    sub_partitions: int = 1
    """A warp's registers lie in one of them."""

    @classmethod
    def of(cls, device: DeviceSpec) -> Limits:
        """Take an NVIDIA GPU's: 255 registers a thread and 1,024 threads a block on every architecture since sm_35."""
        limits = 255, device.registers_per_sm, MOST_THREADS, device.warp_size, device.num_sms
        return cls(*limits, 12, REGISTER_GRANULE, SUB_PARTITIONS)

    def most_warps(self, registers: int) -> int:
        """Give the warps that fit a multiprocessor side by side, by the registers of a thread.

        Each sub-partition holds whole warps: with 200 registers it has room for two and a half, and a thread block of
        ten warps, whose registers are fewer than the multiprocessor's, cannot be launched.
        """
        of_warp = ceil_div(max(1, registers), self.register_granule) * self.register_granule * self.warp_size
        return self.sub_partitions * (self.registers_per_block // self.sub_partitions // of_warp)


@dataclass(frozen=True)
class Survivors:
    """What is left of the space."""

    sizes: tuple[TileSize, ...]
    counts: Mapping[str, int]
    """Tile sizes left after each of `STAGES`, as in the paper's figure 3."""
    relaxed: str = ""
    """The stage that nothing passed, where there was one: `sizes` are then those before it."""
    balance: Mapping[int, float] = field(default_factory=dict)
    """COV_row by M1, of those that were asked for."""

    def joined(self, more: Survivors) -> Survivors:
        """Add what is left of another part of the space, of which nothing was waived for want of better."""
        counts = {stage: count + more.counts[stage] for stage, count in self.counts.items()}
        sizes = self.sizes if more.relaxed else self.sizes + more.sizes
        return Survivors(sizes, counts, self.relaxed, {**more.balance, **self.balance})


def estimate_registers(tile_rows: int, cpt: int, prefetch: int, fixed: int = 12) -> int:
    """Give the registers of a thread: its sums, the elements of B in flight, and the rest.

    Vectors want registers in a row, at a multiple of their length. What the assembler leaves unused or copies for that
    is 15 % with four columns, and with two once sums and elements are more than 96 (ptxas 13.0, sm_90).
    """
    held = cpt * (tile_rows + prefetch)
    crowded = cpt == 4 or (cpt == 2 and held > _CROWDED)
    return ceil_div(23 * held, 20) + fixed if crowded else held + fixed


def register_cap(tile_rows: int, cpt: int, prefetch: int) -> int:
    """Give the cap for the compiler: the estimate, rounded up to what the hardware hands out; at most 255."""
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

    Where a constraint would leave nothing (a small problem cannot fill half of a large GPU), it and those after it are
    waived and `Survivors.relaxed` names it.

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
        Non-zeros of every row tile for an M1, after reordering; asked once for each M1 that comes so far.
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
