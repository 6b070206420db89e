"""Proxies: their size, what they stand for, and the arguments that they are run with."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.emit_ptx import function_ptx
from spmark.impls.lo_spmm.kernel import Tile, TileSchedule, make_tiles
from spmark.impls.lo_spmm.proxies import (
    active_blocks,
    active_tiles,
    cluster_tiles,
    launch_for,
    loop_length,
    make_proxy,
    shared_for,
)
from spmark.impls.lo_spmm.reorder import Reordering, deal_rows
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.device import shipped_calibration

SPEC = DeviceSpec.load(shipped_calibration("nvidia-h200"))


def test_clusters_part_what_is_far_apart() -> None:
    nnc = np.array([10, 90, 11, 50, 91, 9])
    nnz = np.array([20, 200, 21, 90, 201, 22])
    assert cluster_tiles(nnc, nnz, 3).tolist() == [0, 1, 0, 2, 1, 0]
    assert cluster_tiles(nnc, nnz, 1).tolist() == [0] * 6
    assert cluster_tiles(nnc, nnz, 6).tolist() == list(range(6))


@pytest.mark.parametrize(
    ("blocks", "threads", "registers", "expected"),
    [(132 * 40, 256, 40, 6), (132 * 40, 32, 24, 32), (132 * 3, 256, 40, 3), (5, 256, 40, 1), (132 * 9, 1024, 32, 2)],
)
def test_active_blocks_keep_to_every_bound(blocks: int, threads: int, registers: int, expected: int) -> None:
    assert active_blocks(blocks, threads, registers, SPEC) == expected


def test_arguments_of_a_launch() -> None:
    facts = {"num_tiles": 192, "width": 1000, "registers": 62, "device": SPEC}
    launch = launch_for(TileSize(16, 128, 2), **facts)
    assert launch.grid == (4, 192, 1)
    assert launch.threads == 128
    assert launch.shared_bytes == shared_for(6, SPEC)  # also where the proxy's registers would let as many blocks in
    stacked = TileSize(16, 128, 2, 5)
    launch = launch_for(stacked, **facts)
    assert launch.grid == (4, 39, 1)
    assert launch.threads == 640
    assert launch.shared_bytes == shared_for(1, SPEC)
    assert active_tiles(stacked, 192, 1000, 62, SPEC) == 5


def test_a_proxy_keeps_the_ratio_of_its_cluster() -> None:
    rng = np.random.default_rng(2)
    lengths = np.r_[rng.integers(300, 320, 64), rng.integers(100, 110, 64)].tolist()
    matrix = random_csr(128, 1000, lengths)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 8, Reordering.NONE))
    sparsity = 1 - matrix.nnz / (128 * 1000)
    proxy = make_proxy(tiles, sparsity, [1, 1], width=64, schedule=TileSchedule(1), least_instructions=0)
    assert len(proxy.tiles) == 3
    assert proxy.dispatch.size == len(tiles)
    for number, tile in enumerate(proxy.tiles):
        members = [tiles[i] for i in np.flatnonzero(proxy.dispatch == number)]
        mean = sum(t.nnz for t in members) / sum(t.nnc for t in members)
        assert tile.nnz / tile.nnc == pytest.approx(mean, rel=0.02)
        assert tile.nnc == min(loop_length(np.mean([t.nnc for t in members]), sparsity), tile.nnc)
        # Products go where they go in a tile of the cluster.
        (model,) = (t for t in members if np.array_equal(t.rows, tile.rows))
        held = {(col, *sums) for col, sums in _columns(model)}
        assert {(col, *sums) for col, sums in _columns(tile)} <= held
        # Nothing can be dropped: as many distinct weights as products, and every sum is stored.
        assert np.unique(tile.values).size == tile.nnz
        assert function_ptx(proxy, number).count("st.global") == tile.rows.size
    assert sum(tile.nnz for tile in proxy.tiles) < 0.3 * matrix.nnz


@pytest.mark.parametrize("share", [0.1, 0.3, 0.75])
def test_a_shorter_proxy_keeps_the_same_columns_of_all_tiles(share: float) -> None:
    """So that rows of B which several tiles of a thread block need stay as many in proportion."""
    matrix = random_csr(96, 1000, [100] * 96)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 8))
    proxy = make_proxy(tiles, 0.9, [1], width=64, schedule=TileSchedule(1), share=share)
    assert len(proxy.tiles) == len(tiles)  # few instructions, so all functions are there
    kept = set(np.concatenate([tile.cols for tile in proxy.tiles]).tolist())
    assert len(kept) == pytest.approx(1000 * share, rel=0.02)
    for tile, number in zip(tiles, proxy.dispatch.tolist(), strict=True):
        shorter = proxy.tiles[number]
        assert _columns(shorter) == [(col, sums) for col, sums in _columns(tile) if col in kept]
        assert shorter.nnc == pytest.approx(tile.nnc * share, rel=0.25)
        assert shorter.values.size == shorter.nnz == shorter.starts[-1]


def _columns(tile: Tile) -> list[tuple[int, list[int]]]:
    sums = np.split(tile.sums, tile.starts[1:-1])
    return [(int(col), of_column.tolist()) for col, of_column in zip(tile.cols, sums, strict=True)]
