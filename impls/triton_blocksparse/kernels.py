"""Block-sparse SpMM and SDDMM as Triton programs, float16 with float32 sums.

Importing this file needs Triton, so that other modules import it inside of functions. Template arguments of a program
have names in capitals, as Triton's users write them; S is the block size.
"""

from __future__ import annotations

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]


@triton.jit  # type: ignore[untyped-decorator]
def spmm(  # noqa: PLR0917
    indptr: tl.tensor,
    indices: tl.tensor,
    blocks: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    num_rows: tl.tensor,
    num_cols: tl.tensor,
    width: tl.tensor,
    S: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """C = A B: a program owns one block row and TILE columns, and takes GROUP of the row's blocks at a time.

    ``indptr, indices, blocks`` are those of `BsrFormat`, blocks in float16; ``b`` (num_cols, width) and ``c``
    (num_rows, width) are row-major. A block row without blocks writes zeros.
    """
    row = tl.program_id(0)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    i = tl.arange(0, S)
    n = tl.arange(0, GROUP * S)
    end = tl.load(indptr + row + 1)
    total = tl.zeros((S, TILE), tl.float32)
    for first in range(tl.load(indptr + row), end, GROUP):
        block = first + n // S
        k = tl.load(indices + block, mask=block < end, other=0) * S + n % S
        inside = (block < end) & (k < num_cols)
        places = (block.to(tl.int64) * (S * S) + n % S)[None, :] + i[:, None] * S
        left = tl.load(blocks + places, mask=(block < end)[None, :], other=0.0)
        right = tl.load(
            b + k.to(tl.int64)[:, None] * width + j[None, :], mask=inside[:, None] & (j < width)[None, :], other=0.0
        )
        total = tl.dot(left, right, total)
    at = row * S + i
    written = (at < num_rows)[:, None] & (j < width)[None, :]
    tl.store(c + at.to(tl.int64)[:, None] * width + j[None, :], total.to(tl.float16), mask=written)


@triton.jit  # type: ignore[untyped-decorator]
def sddmm(  # noqa: PLR0917
    tasks: tl.tensor,
    indptr: tl.tensor,
    indices: tl.tensor,
    starts: tl.tensor,
    ranks: tl.tensor,
    values: tl.tensor,
    x: tl.tensor,
    y: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    num_cols: tl.tensor,
    width: tl.tensor,
    S: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
    FULL: tl.constexpr,
    SCALED: tl.constexpr,
) -> None:
    """D = (X Y^T at A's non-zeros): a program owns up to GROUP blocks of a block row, TILE columns of X at a time.

    ``tasks`` (n, 2) has the block row and the first block of every program. ``starts`` is A's indptr where all blocks
    are FULL. Otherwise ``starts`` has the position of the first non-zero in a row of a block, and ``ranks`` (int8,
    nblocks x S x S) the number of non-zeros before each, -1 for padding. ``values`` (nnz) are read where SCALED.
    """
    row = tl.load(tasks + 2 * tl.program_id(0))
    first = tl.load(tasks + 2 * tl.program_id(0) + 1)
    end = tl.load(indptr + row + 1)
    i = tl.arange(0, S)
    n = tl.arange(0, GROUP * S)
    j = tl.arange(0, TILE)
    at = row * S + i
    block = first + n // S
    k = tl.load(indices + block, mask=block < end, other=0) * S + n % S
    inside = (block < end) & (k < num_cols)
    total = tl.zeros((S, GROUP * S), tl.float32)
    for base in range(0, width, TILE):
        column = base + j
        left = tl.load(
            x + at.to(tl.int64)[:, None] * width + column[None, :],
            mask=(at < num_rows)[:, None] & (column < width)[None, :],
            other=0.0,
        )
        right = tl.load(
            y + k.to(tl.int64)[None, :] * width + column[:, None],
            mask=inside[None, :] & (column < width)[:, None],
            other=0.0,
        )
        total = tl.dot(left, right, total)
    if FULL:
        p = tl.load(starts + at)[:, None] + ((first - tl.load(indptr + row)) * S + n)[None, :]
        written = (block < end)[None, :] & (at < num_rows)[:, None]
    else:
        here = (block < end)[None, :] & (at < num_rows)[:, None]
        run = block.to(tl.int64)[None, :] * S + i[:, None]
        rank = tl.load(ranks + run * S + (n % S)[None, :], mask=here, other=-1).to(tl.int32)
        p = tl.load(starts + run, mask=here, other=0) + rank
        written = rank >= 0
    if SCALED:
        total *= tl.load(values + p, mask=written, other=0.0).to(tl.float32)
    tl.store(out + p, total.to(tl.float16), mask=written)
