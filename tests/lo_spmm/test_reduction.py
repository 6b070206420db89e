"""All proxies of a search are shortened alike, to a sum, and are the same whoever asks."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr

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


def test_nothing_is_cut_where_proxies_are_short(space: TileSpace) -> None:
    reduction = Reduction.of(space, least_instructions=0)
    assert reduction.share == 1
    # One that the search compares with others is what it is for all its candidates.
    sizes = space.survivors.sizes
    assert {kernel: len(active) for kernel, active in reduction.active.items()} == {
        kernel: sum(kernel_of(size) == kernel for size in sizes) for kernel in map(kernel_of, sizes)
    }
