"""A candidate's time by counting, without compiling or running it.

The paper measures proxies instead. Each thread block runs a kernel without loops once, so that its code is data, too,
and a block is a chain of instructions that no other warp shortens. The rates are those of an H200: seven numbers and an
exponent. They were fitted to 920 times of 48 kernels of eleven pruned layers from a cold L2, which they met within 15 %
on average. The assembler, and not the kernel, decides how far loads run ahead; the loads are counted in machine code.

The times and counts to which these numbers were fitted were not kept; docs/notes/lo_spmm.md says how they were taken.
"""

from __future__ import annotations

import math

from spmark.impls.lo_spmm.constraints import resident_blocks
from spmark.impls.lo_spmm.kernel import INSTRUCTION_BYTES
from spmark.impls.lo_spmm.reorder import MOST_EMPTY
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize, grid_of
from spmark.impls.runtime.target import ceil_div

_ENTRY_INSTRUCTIONS = 30
_ISSUE = 1.28 / 4
"""Cycles of an instruction of a warp, with four schedulers."""
_LOAD = 1.23
"""Cycles in which the L1 serves one load of a warp, a column each."""
_DATA_BYTES = 64 / 1.33
"""Bytes that come from L2 in a cycle."""
_FETCH = 2.74
"""Cycles in which an instruction comes to a multiprocessor that has not run it."""
_LATENCY = 326.0
"""Cycles between asking for an element and having it."""
_CHAIN = 9.37
"""Cycles of an instruction in a warp that runs alone, from code that it is the first to run."""
_MEMORY_SHARE = 0.56
"""Share of a copy's bandwidth that the kernels reach."""
CYCLES_PER_S = 1.755e9
"""Clock by which times became cycles."""
TOGETHER = 2.58
"""Exponent with which the parts add up: with 1 each would wait for the others, with infinity the longest hides all."""
NEXT_GRID = 1500.0
"""Cycles from the end of a grid to the end of a small one after it. This rate and the next were fitted, with all others
fixed, to 523 times of split kernels of three layers and to 376 times of the same layers' whole kernels."""
_SUM_BYTES = 2000.0
"""Bytes of workspace that all multiprocessors together write, read and add up in a cycle."""
_AHEAD = {
    1: {2: 8.8, 4: 7.6, 8: 8.4, 12: 9.1, 16: 5.4, 20: 4.6, 24: 7.1, 32: 9.7, 48: 9.4, 64: 9.6, 96: 14.1, 128: 19.2},
    2: {2: 5.0, 4: 5.3, 8: 3.0, 12: 2.8, 16: 4.2, 20: 3.8, 24: 4.3, 32: 5.3, 48: 9.9, 64: 9.9, 96: 9.1},
    4: {2: 2.6, 4: 2.6, 8: 3.1, 12: 3.5, 16: 5.4, 20: 7.7, 24: 6.1, 32: 6.9},
}
"""Loads that are still on their way when the first element of one is used, by columns of a thread and M1: means over a
tile, and over four layers (geometric), of ptxas 13.0's code for sm_90 under the caps that kernels are assembled
with. ptxas orders loads by rules of its own, whatever the order of the PTX, and more registers do not always mean more
loads."""


def loads_ahead(tile_rows: int, cpt: int, prefetch: int) -> float:
    """Give how many of the ``prefetch`` loads that a thread asks for are on their way on average."""
    known = _AHEAD[cpt]
    return min(prefetch, known[min(known, key=lambda rows: abs(rows - tile_rows))])


def estimate(space: TileSpace, size: TileSize) -> float:
    """Give the cycles of a candidate: those of its busiest multiprocessor, by the rates above."""
    device, matrix, width = space.device, space.problem.matrix, space.problem.width
    num_rows, num_cols = matrix.shape
    dealt, prefetch = space.dealt(size.tile_rows, size.split), space.pins.depth(size.tile_rows, size.cpt)
    tiles_in_all, loads = dealt.nnz.size, float(dealt.nnc.mean())
    warps, stacked = size.threads / device.warp_size, min(size.tiles_per_block, tiles_in_all)
    # Tiles of uncut columns write empty rows beside their own.
    empty_rows = min(num_rows - matrix.filled_rows, MOST_EMPTY * len(dealt.rows)) if size.split == 1 else 0
    stores = size.tile_rows + empty_rows / tiles_in_all
    instructions = float(dealt.nnz.mean()) * size.cpt + loads + stores + _ENTRY_INSTRUCTIONS
    columns, rows, _ = grid_of(size, tiles_in_all, width)
    blocks = columns * rows
    busiest = ceil_div(blocks, device.num_sms)
    resident = resident_blocks(size.block_threads, space.registers(size), device)
    turns = ceil_div(busiest, min(busiest, resident))
    # Blocks of neighbouring columns follow each other: with more of them than multiprocessors, each of these runs the
    # same functions several times in a row.
    functions = ceil_div(busiest, max(1, columns // device.num_sms)) * stacked
    tiles = busiest * stacked
    # Columns that several tiles of a block need come to the multiprocessor once.
    of_part = num_cols / size.split
    shared = of_part * (1 - (1 - min(loads / of_part, 1 - 1e-4)) ** stacked)
    moved = (num_cols + num_rows) * width * 4 + tiles_in_all * instructions * INSTRUCTION_BYTES
    parts = (
        tiles * warps * instructions * _ISSUE,
        tiles * warps * loads * size.cpt * _LOAD,
        blocks / device.num_sms * shared * size.tile_width * 4 / _DATA_BYTES,
        functions * instructions * _FETCH,
        turns * loads / loads_ahead(size.tile_rows, size.cpt, prefetch) * _LATENCY,
        turns * instructions * _CHAIN,
        moved / (max(device.copy_bytes_per_s, 1e9) * _MEMORY_SHARE / CYCLES_PER_S),
    )
    sums = NEXT_GRID + 2 * size.split * num_rows * width * 4 / _SUM_BYTES if size.split > 1 else 0.0
    # Rounded once: the last bit of sum() depends on Python's version.
    return float(math.fsum(part**TOGETHER for part in parts) ** (1 / TOGETHER) + sums)
