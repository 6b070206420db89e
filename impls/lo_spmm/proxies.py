"""Short kernels that stand for long ones when candidates are compared (LO-SpMM, section 5).

A proxy is an `UnrolledKernel` like any other, so both emitters write it; its results mean nothing. One proxy serves
every N1 of an M1, since a kernel takes N1 from its launch (kernel function reduction, section 5.1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.constraints import resident_blocks
from spmark.impls.lo_spmm.kernel import Tile, UnrolledKernel
from spmark.impls.lo_spmm.space import TileSize, grid_of
from spmark.impls.runtime.target import ceil_div

_CLUSTERS_PER_BLOCK = 3
_JITTER = 1e-3
"""Far below the least difference of two counts."""
_LOOP_CONSTANT = 300
_RESERVED_SHARED_BYTES = 1024
"""Bytes that CUDA keeps of each thread block's shared memory, compute capability 8.0 and newer."""


def active_blocks(num_blocks: int, threads: int, registers: int, device: DeviceSpec) -> int:
    """Give the thread blocks that run side by side on a multiprocessor (equation 5), at least 1.

    The paper counts blocks and registers. A multiprocessor's most threads and most blocks are bounds, too.

    Parameters
    ----------
    num_blocks : int
        Thread blocks of the launch.
    threads, registers : int
        Threads of a thread block, and registers of a thread.
    """
    return max(1, min(ceil_div(num_blocks, device.num_sms), resident_blocks(threads, registers, device)))


def shared_for(blocks: int, device: DeviceSpec) -> int:
    """Give the dynamic shared memory with which ``blocks`` thread blocks fit a multiprocessor and no more (equation 6).

    With one block this is all shared memory that a block may have.
    """
    share = device.shared_bytes_per_sm // blocks - _RESERVED_SHARED_BYTES
    return max(0, min(share, device.shared_bytes_per_block) // 128 * 128)


def active_tiles(size: TileSize, num_tiles: int, width: int, registers: int, device: DeviceSpec) -> int:
    """Give the row tiles that run side by side on a multiprocessor."""
    columns, rows, _ = grid_of(size, num_tiles, width)
    return active_blocks(columns * rows, size.block_threads, registers, device) * size.tiles_per_block


def cluster_tiles(nnc: NDArray[np.int64], nnz: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Put tiles into at most ``count`` clusters by loads and products (section 5.1.2).

    Agglomerative (Ward), by the Euclidean distance of the two counts. Random numbers decide which of the tiles with
    equal counts are nearer, since there would be fewer clusters if such tiles stayed together. O(tiles^2).

    Returns
    -------
    (tiles,) int32
        Cluster of each tile, numbered from 0 in the order of their first tiles.
    """
    if nnc.size <= count:
        return np.arange(nnc.size, dtype=np.int32)
    points = np.column_stack((nnc, nnz)) + np.random.default_rng(0).uniform(0, _JITTER, (nnc.size, 2))
    labels = fcluster(linkage(points, "ward"), count, "maxclust")
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int32)


def loop_length(nnc: float, sparsity: float) -> int:
    """Give the loads that a proxy function keeps, min(NNC, 300 / (1 - sparsity)) (section 5.1.3), at least 1."""
    kept = min(nnc, _LOOP_CONSTANT / (1 - sparsity)) if sparsity < 1 else nnc
    return max(1, round(kept))


def make_proxy(kernel: UnrolledKernel, sparsity: float, active: Sequence[int]) -> UnrolledKernel:
    """Reduce a kernel to a proxy of all its N1.

    Every cluster becomes one function: that of its most central tile, or of some columns of this tile, spread over all
    of A's. Products go to the same sums as in the tile, since compilers order products by their sums. Sums are stored,
    so no compiler drops them. A kernel of few tiles is its own proxy, unless its loops are cut.

    Parameters
    ----------
    kernel : UnrolledKernel
    sparsity : float
        Sparsity of A.
    active : sequence of int
        `active_tiles` of every candidate that the proxy serves. Three clusters are kept for each tile of the greatest
        number (section 5.1.2).
    """
    nnc = np.array([tile.nnc for tile in kernel.tiles], np.int64)
    nnz = np.array([tile.nnz for tile in kernel.tiles], np.int64)
    cluster = cluster_tiles(nnc, nnz, _CLUSTERS_PER_BLOCK * max(active))
    functions = []
    for number in range(int(cluster.max(initial=-1)) + 1):
        members = np.flatnonzero(cluster == number)
        mean_nnc, mean_nnz = nnc[members].mean(), nnz[members].mean()
        distance = np.hypot(nnc[members] - mean_nnc, nnz[members] - mean_nnz)
        model = kernel.tiles[int(members[distance.argmin()])]
        functions.append(_proxy_tile(model, loop_length(mean_nnc, sparsity) / max(1.0, mean_nnc)))
    return replace(kernel, tiles=tuple(functions), dispatch=cluster, followed=False)


def _proxy_tile(model: Tile, share: float) -> Tile:
    """Keep a share of A's columns, the same of every tile, so that tiles still share rows of B in proportion."""
    if share >= 1:
        return model
    kept = np.flatnonzero(np.floor((model.cols + 1.0) * share) > np.floor(model.cols * share))
    kept = kept if kept.size else np.zeros(1, np.int64)
    lengths = np.diff(model.starts)[kept]
    starts = np.append(0, np.cumsum(lengths))
    entries = np.repeat(model.starts[kept] - starts[:-1], lengths) + np.arange(starts[-1])
    return Tile(model.rows, model.cols[kept], starts, model.sums[entries], model.values[entries], model.empty)
