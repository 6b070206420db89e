"""Which tile sizes cannot be good on a device, without compiling or running anything (LO-SpMM, sections 3.2 to 3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.space import MOST_THREADS, TileSize, grid_of
from spmark.impls.runtime.target import ceil_div

if TYPE_CHECKING:
    from spmark.impls.lo_spmm.search import TileSpace

MOST_COV_ROW = 0.25
MOST_WASTE_COL = 0.25
STAGES = ("space", "registers", "utilisation", "balance")
"""The whole space, then the constraints in the order in which they are applied."""
MOST_REGISTERS: Final = 255
"""Registers of a thread, on every architecture since sm_35."""
FIXED_REGISTERS = 12
"""Registers of a thread beside sums and loaded elements: addresses, and what the compiler keeps."""
REGISTER_GRANULE = 8
"""The hardware hands out registers of a thread in eights (256 to a warp)."""
SUB_PARTITIONS = 4
"""Parts of a multiprocessor, each with a quarter of its registers and of a thread block's warps; since sm_70."""
_BLOCKS_PER_SM = 32
_CROWDED = 96


@dataclass(frozen=True)
class Survivors:
    """Tile sizes that passed the constraints."""

    sizes: tuple[TileSize, ...]
    counts: Mapping[str, int]
    """Tile sizes left after each of `STAGES`, as in the paper's figure 3."""
    relaxed: str = ""
    """The stage that no tile size passed, if there is one: `sizes` are then those before this stage."""

    def joined(self, more: Survivors) -> Survivors:
        """Add the survivors of another part of the space, unless a constraint was waived for that part."""
        counts = {stage: count + more.counts[stage] for stage, count in self.counts.items()}
        sizes = self.sizes if more.relaxed else self.sizes + more.sizes
        return Survivors(sizes, counts, self.relaxed)


def most_warps(registers: int, device: DeviceSpec) -> int:
    """Give the warps that fit a multiprocessor side by side, by the registers of a thread.

    Each sub-partition holds whole warps. With 200 registers a thread it has room for two and a half: a thread block
    of ten warps cannot be launched, though the multiprocessor has enough registers.
    """
    of_warp = ceil_div(max(1, registers), REGISTER_GRANULE) * REGISTER_GRANULE * device.warp_size
    return SUB_PARTITIONS * (device.registers_per_sm // SUB_PARTITIONS // of_warp)


def resident_blocks(threads: int, registers: int, device: DeviceSpec) -> int:
    """Give the thread blocks that fit a multiprocessor side by side, at least 1.

    Parameters
    ----------
    threads, registers : int
        Threads of a thread block, and registers of a thread.
    """
    by_registers = most_warps(registers, device) // ceil_div(threads, device.warp_size)
    return max(1, min(by_registers, device.max_threads_per_sm // threads, _BLOCKS_PER_SM))


def estimate_registers(tile_rows: int, cpt: int, prefetch: int) -> int:
    """Give the registers of a thread: its sums, the elements of B in flight, and the rest.

    Vectors want registers in a row, at a multiple of their length. For that the assembler leaves unused or copies 15 %
    with four columns, and with two columns once sums and elements are more than 96 (ptxas 13.0, sm_90).
    """
    elements = cpt * (tile_rows + prefetch)
    crowded = cpt == 4 or (cpt == 2 and elements > _CROWDED)
    return (ceil_div(23 * elements, 20) if crowded else elements) + FIXED_REGISTERS


def register_cap(tile_rows: int, cpt: int, prefetch: int) -> int:
    """Give the cap for the compiler: the estimate, rounded up to a number that the hardware hands out; at most 255."""
    estimate = estimate_registers(tile_rows, cpt, prefetch)
    return min(MOST_REGISTERS, ceil_div(estimate, REGISTER_GRANULE) * REGISTER_GRANULE)


def cov_row(tile_nnz: NDArray[np.int64]) -> float:
    """Give the coefficient of variation of the non-zeros of the row tiles; 0 without tiles."""
    mean = float(tile_nnz.mean()) if tile_nnz.size else 0.0
    return float(tile_nnz.std()) / mean if mean else 0.0


def survivors(space: TileSpace, sizes: Iterable[TileSize]) -> Survivors:
    """Apply the three constraints to some tile sizes of a space, one after the other.

    Where a constraint would leave nothing (a small problem cannot fill half of a large GPU), this constraint and those
    after it are waived, and `Survivors.relaxed` names it. Rows are dealt once for each M1 that gets as far as the last.
    """
    device, width = space.device, space.problem.width

    def registers(size: TileSize) -> bool:
        needed = estimate_registers(size.tile_rows, size.cpt, space.pins.depth(size.tile_rows, size.cpt))
        warps = ceil_div(size.block_threads, device.warp_size)
        return needed <= MOST_REGISTERS and warps <= most_warps(needed, device)

    def utilisation(size: TileSize) -> bool:
        whole_warps = size.threads % device.warp_size == 0 and size.block_threads <= MOST_THREADS
        columns, rows, _ = grid_of(size, ceil_div(space.problem.matrix.filled_rows, size.tile_rows) * size.split, width)
        return whole_warps and 2 * columns * rows >= device.num_sms

    @cache
    def cov_of(tile_rows: int) -> float:
        return cov_row(space.dealt(tile_rows).nnz)

    def balance(size: TileSize) -> bool:
        covered = ceil_div(width, size.tile_width) * size.tile_width
        return (covered - width) / covered <= MOST_WASTE_COL and cov_of(size.tile_rows) <= MOST_COV_ROW

    left = tuple(sizes)
    counts = {STAGES[0]: len(left)}
    relaxed = ""
    for name, keeps in zip(STAGES[1:], (registers, utilisation, balance), strict=True):
        kept = () if relaxed else tuple(filter(keeps, left))
        counts[name] = len(kept)
        left, relaxed = (kept, "") if kept else (left, relaxed or name)
    return Survivors(left, counts, relaxed)
