"""Short kernels that stand for long ones when candidates are compared (LO-SpMM, section 5).

A proxy is an `UnrolledKernel` like any other, so both emitters write it; its results mean nothing. One serves every
N1 of an M1, since a kernel takes N1 from its launch (kernel function reduction, section 5.1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.kernel import Schedule, Tile, UnrolledKernel
from spmark.impls.lo_spmm.space import TileSize, grid_of
from spmark.impls.runtime.target import ceil_div

_CLUSTERS_PER_BLOCK = 3
_MOST_CLUSTERS = 12
"""Of a proxy: more than run side by side on a multiprocessor in any candidate that is not far from the best."""
_LOOP_CONSTANT = 300
_RESERVED_SHARED_BYTES = 1024
"""What CUDA keeps of each thread block's shared memory, compute capability 8.0 and newer."""
_BLOCKS_PER_SM = 32


@dataclass(frozen=True)
class ProxyArguments:
    """How a proxy is launched for one candidate."""

    grid: tuple[int, int, int]
    threads: int
    """Of a thread block."""
    shared_bytes: int
    """Dynamic shared memory that holds the proxy to the candidate's occupancy (section 5.2.2)."""


def resident_blocks(threads: int, registers: int, device: DeviceSpec) -> int:
    """Give the thread blocks that fit a multiprocessor side by side, at least 1.

    Parameters
    ----------
    threads, registers : int
        Of a thread block, and of one of its threads.
    """
    # Registers go out to warps in units of 256.
    per_block = ceil_div(registers * device.warp_size, 256) * 256 * ceil_div(threads, device.warp_size)
    return max(1, min(device.registers_per_sm // per_block, device.max_threads_per_sm // threads, _BLOCKS_PER_SM))


def active_blocks(num_blocks: int, threads: int, registers: int, device: DeviceSpec) -> int:
    """Give the thread blocks that run side by side on a multiprocessor (equation 5), at least 1.

    The paper counts blocks and registers; threads and the most blocks of a multiprocessor bound them too.

    Parameters
    ----------
    num_blocks : int
        Of the launch.
    threads, registers : int
        Of a thread block, and of one of its threads.
    """
    return max(1, min(ceil_div(num_blocks, device.num_sms), resident_blocks(threads, registers, device)))


def shared_for(blocks: int, device: DeviceSpec) -> int:
    """Give the dynamic shared memory with which ``blocks`` thread blocks fit a multiprocessor and no more (equation 6).

    With one block it is all that a block may have.
    """
    share = device.shared_bytes_per_sm // blocks - _RESERVED_SHARED_BYTES
    return max(0, min(share, device.shared_bytes_per_block) // 128 * 128)


def launch_for(
    size: TileSize, num_tiles: int, width: int, *, registers: int, own_registers: int, device: DeviceSpec
) -> ProxyArguments:
    """Give the arguments that make a proxy stand for one candidate.

    Shared memory is taken only where the proxy's own registers would let other numbers of blocks in: what it takes, the
    L1 cache loses.

    Parameters
    ----------
    size : TileSize
    num_tiles, width : int
        Row tiles, and J.
    registers, own_registers : int
        Of a thread of the candidate, and of the proxy.
    device : DeviceSpec
    """
    grid = grid_of(size, num_tiles, width)
    active, own = (
        active_blocks(grid[0] * grid[1], size.block_threads, count, device) for count in (registers, own_registers)
    )
    return ProxyArguments(grid, size.block_threads, 0 if own == active else shared_for(active, device))


def active_tiles(size: TileSize, num_tiles: int, width: int, registers: int, device: DeviceSpec) -> int:
    """Give the row tiles that run side by side on a multiprocessor."""
    columns, rows, _ = grid_of(size, num_tiles, width)
    return active_blocks(columns * rows, size.block_threads, registers, device) * size.tiles_per_block


def cluster_tiles(nnc: NDArray[np.int64], nnz: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Put tiles into at most ``count`` clusters by loads and products (section 5.1.2).

    Agglomerative (Ward), Euclidean distance of the two counts as they are. O(tiles^2).

    Returns
    -------
    (tiles,) int32
        Cluster of each tile, numbered from 0 in the order of their first tiles.
    """
    if nnc.size <= count:
        return np.arange(nnc.size, dtype=np.int32)
    points = np.column_stack((nnc, nnz)).astype(np.float64)
    labels = fcluster(linkage(points, "ward"), count, "maxclust")
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int32)


def loop_length(nnc: float, sparsity: float) -> int:
    """Give the loads that a proxy function keeps, min(NNC, 300 / (1 - sparsity)) (section 5.1.3), at least 1."""
    kept = min(nnc, _LOOP_CONSTANT / (1 - sparsity)) if sparsity < 1 else nnc
    return max(1, round(kept))


def make_proxy(
    tiles: Sequence[Tile],
    sparsity: float,
    active: Sequence[int],
    *,
    width: int,
    schedule: Schedule,
    warm: bool = True,
    seed: int = 0,
) -> UnrolledKernel:
    """Reduce a kernel to a proxy of all its N1.

    Every cluster becomes one function: loads of some columns of its most central tile, spread over all of them, and the
    cluster's mean of products for each load, dealt to the sums in turn. Sums are stored, so no compiler drops them.

    Parameters
    ----------
    tiles : sequence of Tile
        Of the kernel.
    sparsity : float
        Of A.
    active : sequence of int
        `active_tiles` of every candidate that the proxy serves: three clusters are kept for each of the most,
        and `_MOST_CLUSTERS` altogether.
    width : int
        J.
    schedule : Schedule
    warm : bool
        `UnrolledKernel.warm` of the kernel.
    seed : int
        Of the weights, which differ so that no two products are one.
    """
    nnc = np.array([tile.nnc for tile in tiles], np.int64)
    nnz = np.array([tile.nnz for tile in tiles], np.int64)
    cluster = cluster_tiles(nnc, nnz, min(_CLUSTERS_PER_BLOCK * max(active), _MOST_CLUSTERS))
    rng = np.random.default_rng(seed)
    functions = []
    for number in range(int(cluster.max(initial=-1)) + 1):
        members = np.flatnonzero(cluster == number)
        centre = np.array([nnc[members].mean(), nnz[members].mean()])
        distance = np.hypot(nnc[members] - centre[0], nnz[members] - centre[1])
        model = tiles[int(members[distance.argmin()])]
        functions.append(_proxy_tile(model, centre, loop_length(centre[0], sparsity), rng))
    return UnrolledKernel(tuple(functions), cluster, width, schedule, warm)


def _proxy_tile(model: Tile, centre: NDArray[np.float64], loads: int, rng: np.random.Generator) -> Tile:
    loads = min(loads, model.nnc)
    cols = model.cols[np.linspace(0, model.nnc - 1, loads).round().astype(np.int64)]
    starts = np.floor(np.arange(loads + 1) * (centre[1] / centre[0])).astype(np.int64)
    entries = int(starts[-1])
    sums = (np.arange(entries) % model.rows.size).astype(np.int32)
    return Tile(model.rows, cols, starts, sums, rng.uniform(0.5, 1, entries).astype(np.float32))
