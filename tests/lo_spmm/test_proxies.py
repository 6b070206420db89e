"""Proxies: their size, what they stand for, and the arguments that they are run with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.emit_ptx import function_ptx
from spmark.impls.lo_spmm.kernel import Tile, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.parts import tiles_of
from spmark.impls.lo_spmm.proxies import (
    active_blocks,
    active_tiles,
    cluster_tiles,
    loop_length,
    make_proxy,
    shared_for,
)
from spmark.impls.lo_spmm.reorder import Reordering, deal_rows
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import kernel_of
from spmark.impls.runtime.device import shipped_calibration

SPEC = DeviceSpec.load(shipped_calibration("nvidia-h200"))


def whole_kernel(tiles: tuple[Tile, ...], width: int, cpt: int = 1) -> UnrolledKernel:
    return UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), width, cpt)


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


def test_row_tiles_that_run_side_by_side() -> None:
    facts = {"num_tiles": 192, "width": 1000, "registers": 62, "device": SPEC}
    assert active_tiles(TileSize(16, 128, 2), **facts) == 6  # 4 x 192 blocks of 128 threads
    assert active_tiles(TileSize(16, 128, 2, 5), **facts) == 5  # 4 x 39 blocks of 640 threads


@pytest.mark.parametrize("blocks", [1, 3, 6, 20])
def test_shared_memory_lets_as_many_blocks_in_and_no_more(blocks: int) -> None:
    each = shared_for(blocks, SPEC) + 1024
    assert blocks * each <= SPEC.shared_bytes_per_sm < (blocks + 1) * each


def test_a_proxy_keeps_the_ratio_of_its_cluster() -> None:
    rng = np.random.default_rng(2)
    lengths = np.r_[rng.integers(300, 320, 64), rng.integers(100, 110, 64)].tolist()
    matrix = random_csr(128, 1000, lengths)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 8, Reordering.NONE))
    sparsity = 1 - matrix.nnz / (128 * 1000)
    proxy = make_proxy(whole_kernel(tiles, 64), sparsity, [1, 1])
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


def test_shorter_loops_are_columns_of_their_tile_spread_over_all_of_a() -> None:
    matrix = random_csr(96, 3000, [900] * 96)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 8))
    proxy = make_proxy(whole_kernel(tiles, 64), 0.7, [len(tiles)])
    assert len(proxy.tiles) == len(tiles)  # few tiles, so all functions are there
    for tile, number in zip(tiles, proxy.dispatch.tolist(), strict=True):
        shorter, held = proxy.tiles[number], dict(_columns(tile))
        assert all(held[col] == sums for col, sums in _columns(shorter))
        assert shorter.nnc == pytest.approx(loop_length(tile.nnc, 0.7), rel=0.05)
        assert np.median(shorter.cols) == pytest.approx(1500, rel=0.05)
        assert shorter.values.size == shorter.nnz == shorter.starts[-1]


def proxy_of(space: TileSpace, kernel: tuple[int, int, int]) -> tuple[UnrolledKernel, tuple[Tile, ...], int]:
    """Give a kernel's proxy, the kernel's tiles, and the most tiles that a multiprocessor runs side by side."""
    problem, (rows, cpt, split) = space.problem, kernel
    tiles = tiles_of(problem, space.dealt(rows).rows, split)
    sizes = [size for size in space.survivors.sizes if kernel_of(size) == kernel]
    active = [active_tiles(size, len(tiles), problem.width, space.registers(size), SPEC) for size in sizes]
    sparsity = 1 - problem.matrix.nnz / (problem.matrix.num_rows * problem.matrix.num_cols)
    proxy = make_proxy(whole_kernel(tiles, problem.width, cpt), sparsity, active)
    return proxy, tiles, max(active)


def test_proxies_follow_the_papers_rules() -> None:
    lengths = np.random.default_rng(5).binomial(3000, 0.4, 64).tolist()
    problem = Problem(Op.SPMM, random_csr(64, 3000, lengths), 512)
    space = explore(problem, SPEC, Pins(tile_rows=4, cpt=1, tiles_per_block=1, split=1))
    proxy, _, active = proxy_of(space, (4, 1, 1))
    # Three functions for each tile that runs on a multiprocessor side by side, and 300 / (1 - sparsity) loads in each.
    assert len(proxy.tiles) == 3 * active < 16
    density = problem.matrix.nnz / (64 * 3000)
    assert np.mean([tile.nnc for tile in proxy.tiles]) == pytest.approx(300 / density, rel=0.01)


def test_clusters_are_three_for_each_active_block_however_many() -> None:
    """Section 5.1.2 sets no other bound: thread blocks of one warp have 32 side by side."""
    problem = Problem(Op.SPMM, random_csr(2048, 200, [20] * 2048), 512)
    space = explore(problem, SPEC, Pins(tile_rows=2, threads=32, cpt=1, tiles_per_block=1, split=1))
    proxy, _, active = proxy_of(space, (2, 1, 1))
    assert active == 32
    assert len(proxy.tiles) == 96


@pytest.mark.parametrize("name", ["bert_768x768@0.98", "mobilenetv2_960x160@0.98", "resnet50_2048x512@0.98"])
def test_no_proxy_of_table_4s_published_layers_is_its_own_kernel(name: str, tmp_path: Path) -> None:
    (spec,) = (one for one in Sweep.load("lo_spmm_table4_published").matrices if one.name == name)
    (width,) = spec.widths
    problem = Problem(Op.SPMM, load_matrix(spec, Cache(tmp_path), 0).csr, width)
    space = explore(problem, SPEC, Pins(cpt=1, tiles_per_block=1, split=1))
    for kernel in sorted(set(map(kernel_of, space.survivors.sizes))):
        proxy, whole, _ = proxy_of(space, kernel)
        assert len(proxy.tiles) < len(whole)


def _columns(tile: Tile) -> list[tuple[int, list[int]]]:
    sums = np.split(tile.sums, tile.starts[1:-1])
    return [(int(col), of_column.tolist()) for col, of_column in zip(tile.cols, sums, strict=True)]
