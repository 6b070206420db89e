"""Blocked-ELL from BSR, and the choice of a block size, for the library's block formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.limits import MAX_STORED, check_stored

PADDING = -1
"""Block column of a slot without a block: the library passes it over."""


def smallest(matrix: Csr, blocks: Sequence[int]) -> BsrFormat:
    """Convert with the block size that stores fewest elements; of equal ones, with the first in ``blocks``.

    Parameters
    ----------
    matrix : Csr
    blocks : sequence of int
        Rows and columns of a block to choose from.

    Raises
    ------
    BuildError
        Every size stores more than `MAX_STORED` elements.
    """
    block = min(blocks, key=lambda size: count_blocks(matrix, size) * size * size) if len(blocks) > 1 else blocks[0]
    return BsrFormat.from_csr(matrix, block, block)


def count_blocks(matrix: Csr, block: int) -> int:
    """Count the ``block`` x ``block`` blocks that hold a non-zero. O(nnz log nnz) time, 8 bytes a non-zero."""
    rows = matrix.rows_of_entries() // block
    keys = rows * np.int64(-(-matrix.num_cols // block)) + matrix.indices // block
    return int(np.unique(keys).size)


def blocked_ell(held: BsrFormat) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Give every block row as many slots as the fullest one has.

    Parameters
    ----------
    held : BsrFormat
        Square blocks.

    Returns
    -------
    columns : (block rows, slots) int32
        Block columns, `PADDING` where a slot has no block.
    values : (I, slots times block) float32
        Row-major, I rounded up to whole blocks. O(stored).

    Raises
    ------
    BuildError
        The format stores more than `MAX_STORED` elements.
    """
    block, num_block_rows = held.block_shape[0], held.indptr.size - 1
    lengths = np.diff(held.indptr)
    slots = int(lengths.max(initial=0))
    stored = num_block_rows * slots * block * block
    if stored > MAX_STORED:
        check_stored(f"blocked_ell({block})", held, stored, MAX_STORED)
    row = np.repeat(np.arange(num_block_rows), lengths)
    slot = np.arange(held.indices.size) - held.indptr[row]
    columns = np.full((num_block_rows, slots), PADDING, np.int32)
    columns[row, slot] = held.indices
    values = np.zeros((num_block_rows, block, slots, block), np.float32)
    values[row, :, slot, :] = held.blocks
    return columns, values.reshape(num_block_rows * block, slots * block)
