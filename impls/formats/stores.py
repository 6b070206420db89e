"""The stores of formats, and the compositions of implementations whose format follows from a few words of a config.

`spmark.impls.core.stores` says what a store is. Positions come from the formats' own ways back to CSR.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config, Implementation
from spmark.impls.core.problem import Problem
from spmark.impls.core.spans import numbered
from spmark.impls.core.stores import Held, StoreKind, Stores
from spmark.impls.formats.bsr import BsrFormat, DenseBlocks
from spmark.impls.formats.hyb import HybLayout
from spmark.impls.formats.tiles import TileFormat

ROWS = "rows of CSR"


def held_in_rows(nnz: int) -> Held:
    """Give all non-zeros as CSR holds them."""
    return Held(StoreKind.ROW, ROWS, nnz, np.arange(nnz))


def held_in_buckets(layout: HybLayout, places: NDArray[np.int32] | None = None) -> Iterator[Held]:
    """Give the buckets of ELL rows, narrow before wide; those of one width in several partitions have one name.

    Parameters
    ----------
    layout : HybLayout
    places : (n,) int32, optional
        Position in A's CSR order of each non-zero that the layout's ``starts`` count; by default they count A's own.
    """
    for bucket in sorted(layout.buckets, key=lambda bucket: bucket.width):
        span = slice(bucket.first, bucket.first + bucket.count)
        row, number = numbered(layout.lengths[span])
        at = layout.starts[span][row] + number
        stored = bucket.count * bucket.width
        yield Held(StoreKind.BUCKET, f"bucket of {bucket.width}", stored, at if places is None else places[at])


def held_in_blocks(held: DenseBlocks) -> Held:
    """Give the blocks of BSR, DBSR or SR-BCRS."""
    rows, cols = held.block_shape
    return Held(StoreKind.BLOCK, f"blocks of {rows} x {cols}", held.stored, np.arange(held.positions.size))


def held_in_tiles(tiles: TileFormat) -> Iterator[Held]:
    """Give block tiles by height, ELL rows by width, and runs."""
    for height, blocks in tiles.blocks.items():
        yield Held(StoreKind.BLOCK, f"blocks of {height} rows", blocks.values.size, blocks.held)
    if tiles.ell:
        yield from held_in_buckets(tiles.ell, tiles.ell_held)
    if tiles.runs:
        yield Held(StoreKind.ROW, "runs of non-zeros", tiles.runs.values.size, tiles.runs.held)


def word_of(config: Config, name: str, who: str) -> Any:
    """Give an entry of a recorded config.

    Raises
    ------
    BuildError
        There is none; names it.
    """
    if name not in config:
        found = ", ".join(config) or "nothing"
        raise BuildError(f"{who}: expected {name} in the config that a plan chose, found {found}: record the case anew")
    return config[name]


def square_blocks(how: Implementation, problem: Problem, config: Config) -> BsrFormat:
    """Cut A into the blocks of a config, whose ``block`` is the rows and columns of one.

    Raises
    ------
    BuildError
        The config has no ``block``.
    """
    size = word_of(config, "block", how.name)
    return BsrFormat.from_csr(problem.matrix, size, size)


class BsrStores:
    """Plans over BSR with square blocks."""

    def stores(self, how: Implementation, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Give one store of blocks."""
        return Stores.of(problem.matrix.nnz, [held_in_blocks(square_blocks(how, problem, config))])


class RowStores:
    """Plans over CSR as it comes."""

    def stores(self, how: Implementation, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Give one store of rows."""
        return Stores.of(problem.matrix.nnz, [held_in_rows(problem.matrix.nnz)])


class DenseStores:
    """Plans that multiply A as a dense matrix."""

    def stores(self, how: Implementation, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Give one store of I x K elements."""
        rows, cols = problem.matrix.shape
        everything = Held(StoreKind.BLOCK, "dense matrix", rows * cols, np.arange(problem.matrix.nnz))
        return Stores.of(problem.matrix.nnz, [everything])
