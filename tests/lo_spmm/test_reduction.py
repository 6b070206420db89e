"""All proxies of a search are shortened alike, to a sum, and are the same whoever asks."""

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
from spmark.impls.lo_spmm.kernel import Tile, TileSchedule, UnrolledKernel
from spmark.impls.lo_spmm.parts import tiles_of
from spmark.impls.lo_spmm.reduction import Reduction
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.tuning import kernel_of, promising
from spmark.impls.runtime.device import shipped_calibration

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture(scope="module")
def space() -> TileSpace:
    lengths = np.random.default_rng(3).binomial(400, 0.1, 600).tolist()
    return explore(Problem(Op.SPMM, random_csr(600, 400, lengths), 512), H200, Reordering.GREEDY, Pins())


def proxies(space: TileSpace, reduction: Reduction) -> dict[tuple[int, int, int], UnrolledKernel]:
    compared = promising({size: space.cycles(size) for size in space.survivors.sizes})
    return {
        kernel: reduction.proxy(kernel, tiles(space, kernel), TileSchedule(kernel[1]), True)
        for kernel in sorted({kernel_of(size) for size in compared})
    }


def tiles(space: TileSpace, kernel: tuple[int, int, int]) -> tuple[Tile, ...]:
    return tiles_of(space.problem, space.dealt(kernel[0]).rows, kernel[2])


def instructions(kernel: UnrolledKernel) -> int:
    return sum(tile.nnc + kernel.schedule.cpt * tile.nnz for tile in kernel.tiles)


def test_all_proxies_together_have_so_many_instructions(space: TileSpace) -> None:
    whole = proxies(space, Reduction.of(space, most_instructions=10**9))
    most = sum(map(instructions, whole.values())) // 3
    reduction = Reduction.of(space, most_instructions=most)
    shorter = proxies(space, reduction)
    assert reduction.share == pytest.approx(1 / 3, rel=0.05)
    assert sum(map(instructions, shorter.values())) == pytest.approx(most, rel=0.05)
    # Each is as much shorter as the others.
    shares = [instructions(shorter[kernel]) / instructions(whole[kernel]) for kernel in whole]
    assert max(shares) < 1.1 * min(shares)
    assert [len(kernel.tiles) for kernel in shorter.values()] == [len(kernel.tiles) for kernel in whole.values()]


def test_published_proxies_follow_the_papers_rules_alone() -> None:
    lengths = np.random.default_rng(5).binomial(3000, 0.4, 64).tolist()
    problem = Problem(Op.SPMM, random_csr(64, 3000, lengths), 512)
    space = explore(problem, H200, Reordering.GREEDY, Pins(tile_rows=4, cpt=1, tiles_per_block=1))
    published, ours = Reduction.as_published(space), Reduction.of(space, most_instructions=1000)
    assert published.share == 1 > ours.share
    (kernel,) = {kernel_of(size) for size in space.survivors.sizes}
    proxy = published.proxy(kernel, tiles(space, kernel), TileSchedule(1), False)
    # Three functions for each tile that runs on a multiprocessor side by side, and 300 / (1 - sparsity) loads in each.
    assert len(proxy.tiles) == 3 * max(published.active[kernel]) < 16
    density = problem.matrix.nnz / (64 * 3000)
    assert np.mean([tile.nnc for tile in proxy.tiles]) == pytest.approx(300 / density, rel=0.01)


def test_clusters_are_three_for_each_active_block_however_many() -> None:
    """Section 5.1.2 sets no other bound: thread blocks of one warp have 32 side by side."""
    problem = Problem(Op.SPMM, random_csr(2048, 200, [20] * 2048), 512)
    space = explore(problem, H200, Reordering.GREEDY, Pins(tile_rows=2, threads=32, cpt=1, tiles_per_block=1))
    published = Reduction.as_published(space)
    kernel = 2, 1, 1
    assert max(published.active[kernel]) == 32
    assert len(published.proxy(kernel, tiles(space, kernel), TileSchedule(1), False).tiles) == 96


@pytest.mark.parametrize("name", ["bert_768x768@0.98", "mobilenetv2_960x160@0.98", "resnet50_2048x512@0.98"])
def test_no_proxy_of_table_4s_published_layers_is_its_own_kernel(name: str, tmp_path: Path) -> None:
    (spec,) = (one for one in Sweep.load("lo_spmm_table4_published").matrices if one.name == name)
    (width,) = spec.widths
    problem = Problem(Op.SPMM, load_matrix(spec, Cache(tmp_path), 0).csr, width)
    space = explore(problem, H200, Reordering.GREEDY, Pins(cpt=1, tiles_per_block=1))
    published = Reduction.as_published(space)
    for kernel in published.active:
        whole = tiles(space, kernel)
        assert len(published.proxy(kernel, whole, TileSchedule(1), False).tiles) < len(whole)
