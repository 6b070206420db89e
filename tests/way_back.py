"""The way back from a format to CSR, by what the format's arrays are documented to be."""

from __future__ import annotations

import numpy as np

from spmark.impls.core.problem import Csr, numbered, offsets
from spmark.impls.formats.bsr import DbsrFormat, DenseBlocks
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.tiles import GROUP, TileFormat


def csr_of(held: DenseBlocks | HybFormat | TileFormat) -> Csr:
    """Give the matrix that was converted."""
    if isinstance(held, HybFormat):
        return _of_buckets(held)
    return _of_tiles(held) if isinstance(held, TileFormat) else _of_blocks(held)


def _made(shape: tuple[int, int], rows: np.ndarray, indices: np.ndarray, values: np.ndarray) -> Csr:
    return Csr(shape, offsets(np.bincount(rows, minlength=shape[0]), np.int32), indices, values)


def _of_blocks(held: DenseBlocks) -> Csr:
    block_rows, block_cols = map(np.int32, held.block_shape)
    block, slot = np.divmod(held.positions, block_rows * block_cols)
    row, col = np.divmod(slot, block_cols)
    listed = held.rows if isinstance(held, DbsrFormat) else np.arange(held.indptr.size - 1, dtype=np.int32)
    rows = np.repeat(listed, np.diff(held.indptr))[block] * block_rows + row
    indices = held.indices[block] * block_cols + col if held.indices.ndim == 1 else held.indices[block, col]
    return _made(held.shape, rows, indices, held.blocks.reshape(-1)[held.positions])


def _of_buckets(held: HybFormat) -> Csr:
    row, slot = numbered(held.lengths)
    places = [bucket.base + np.arange(bucket.count) * bucket.width for bucket in held.buckets]
    elements = np.concatenate([np.empty(0, np.int64), *places])[row] + slot
    indices, values = np.empty(held.nnz, np.int32), np.empty(held.nnz, np.float32)
    targets = held.starts[row] + slot
    indices[targets], values[targets] = held.indices[elements], held.values[elements]
    return _made(held.shape, held.rows[row], indices, values)


def _of_tiles(held: TileFormat) -> Csr:
    rows, indices = np.zeros((2, held.nnz), np.int32)
    values = np.zeros(held.nnz, np.float32)
    for high, blocks in held.blocks.items():
        group, inside = np.divmod(blocks.places, high * GROUP)
        row, slot = np.divmod(inside, GROUP)
        panel = np.repeat(np.arange(blocks.rows.shape[0]), np.diff(blocks.indptr))
        rows[blocks.held] = blocks.rows[panel[group], row]
        indices[blocks.held] = blocks.indices[group, slot]
        values[blocks.held] = blocks.values.reshape(-1)[blocks.places]
    if held.ell:
        pieces, real = _of_buckets(held.ell), np.flatnonzero(held.ell.rows >= 0)
        real = real[np.argsort(held.ell.starts[real], kind="stable")]
        rows[held.ell_held] = np.repeat(held.ell.rows[real], held.ell.lengths[real])
        indices[held.ell_held], values[held.ell_held] = pieces.indices, pieces.values
    if held.runs:
        rows[held.runs.held], indices[held.runs.held] = held.runs.rows, held.runs.indices
        values[held.runs.held] = held.runs.values
    return _made(held.shape, rows, indices, values)
