"""What each mode looks at, and what it takes; a made-up device answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pytest
from problems import random_csr
from rank_fakes import stump

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, CompileError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.features import FEATURES
from spmark.impls.lo_spmm.reorder import Order
from spmark.impls.lo_spmm.search import Pins, Space, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import (
    FINAL_SAMPLES,
    FINALISTS,
    HOPELESS,
    KERNELS,
    RANKED,
    SAMPLED,
    SAMPLES,
    Mode,
    choose,
    kernel_of,
    promising,
)
from spmark.impls.runtime.device import shipped_calibration

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture(scope="module")
def space() -> Space:
    lengths = np.random.default_rng(7).binomial(200, 0.1, 600).tolist()
    return explore(Problem(Op.SPMM, random_csr(600, 200, lengths), 512), H200, Order.GREEDY, Pins())


class Device:
    """Times by a formula in which 12 rows, 96 threads and two columns are best; some candidates may be lucky once."""

    def __init__(self, broken: int = 0, lucky: Collection[TileSize] = ()) -> None:
        self.broken, self.lucky = broken, lucky
        self.finals: list[TileSize] = []
        self.asked: list[tuple[tuple[TileSize, ...], bool]] = []
        self.prepared: list[TileSize] = []
        self.compile_s = 0.0

    def prepare(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> None:
        self.prepared += [size for sizes in groups for size in sizes]
        self.compile_s += 1e-3 * len(self.prepared)

    def count_kernels(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> int:
        return sum(len({size.block_threads for size in sizes}) for sizes in groups)

    def samples_us(
        self, sizes: Sequence[TileSize], proxies: bool, samples: int = SAMPLES
    ) -> Mapping[TileSize, list[float]]:
        if samples != SAMPLES:
            assert samples == FINAL_SAMPLES
            self.finals = list(sizes)
            return {size: [self.time_us(size)] * samples for size in sizes}
        self.asked.append((tuple(sizes), proxies))
        assert len({(size.tile_rows, size.cpt, size.split) for size in sizes}) == 1
        if sizes[0].tile_rows == self.broken or self.broken < 0:
            raise CompileError("lo_spmm", "ptxas", "out of luck")
        return {size: [self.time_us(size) * (0.1 if size in self.lucky else 1)] * samples for size in sizes}

    @staticmethod
    def time_us(size: TileSize) -> float:
        return abs(size.tile_rows - 12) + abs(size.threads - 96) / 32 + abs(size.cpt - 2) + size.tiles_per_block

    @property
    def sizes(self) -> list[TileSize]:
        return [size for sizes, _ in self.asked for size in sizes]


def test_the_estimate_runs_nothing(space: Space) -> None:
    found = choose(space, Mode.ESTIMATE)
    assert found.size == min(space.survivors.sizes, key=space.cycles)
    assert found.record.candidates == space.survivors.counts["space"]
    assert (found.record.compiled, found.record.measured) == (0, 0)
    assert len(found.record.seen) == space.survivors.counts["balance"]


def test_kernels_without_hope_have_no_proxy() -> None:
    good, far, best_of_far = TileSize(8, 64), TileSize(16, 64), TileSize(16, 96)
    bad = TileSize(4, 64)
    predicted = {good: 10.0, far: 99.0, best_of_far: 10 * HOPELESS, bad: 10 * HOPELESS + 0.1}
    assert promising(predicted) == [good, far, best_of_far]
    assert promising({}) == []


@pytest.mark.parametrize("mode", [Mode.EXHAUSTIVE, Mode.NEAR, Mode.LO_SPMM])
def test_the_fastest_are_measured_again_before_one_is_taken(space: Space, mode: Mode) -> None:
    first = Device()
    choose(space, mode, first)
    lucky = sorted(first.sizes, key=Device.time_us)[FINALISTS + 3]
    device = Device(lucky=[lucky])
    found = choose(space, mode, device)
    assert lucky in device.finals
    assert len(device.finals) == FINALISTS
    assert found.size == min(device.finals, key=Device.time_us) != lucky
    counted = {len(one.samples_us) for one in found.record.seen}
    assert {SAMPLES, FINAL_SAMPLES} <= counted <= {0, SAMPLES, FINAL_SAMPLES}


def test_who_is_not_measured_again_is_not_taken(space: Space) -> None:
    """All that are measured again were lucky: what was not is faster than these by its few samples, and still left."""
    first = Device()
    choose(space, Mode.EXHAUSTIVE, first)
    lucky = [size for size in first.sizes if 4 < Device.time_us(size) < 8][:FINALISTS]
    least_us = min(map(Device.time_us, first.sizes))
    assert 0.1 * max(map(Device.time_us, lucky)) < least_us < min(map(Device.time_us, lucky))
    device = Device(lucky=lucky)
    found = choose(space, Mode.EXHAUSTIVE, device)
    assert set(device.finals) == set(lucky)
    assert found.size in lucky


@pytest.mark.parametrize(("mode", "proxies"), [(Mode.EXHAUSTIVE, False), (Mode.LO_SPMM, True)])
def test_every_candidate_is_run_and_the_fastest_taken(space: Space, mode: Mode, proxies: bool) -> None:
    device = Device()
    found = choose(space, mode, device)
    compared = list(space.survivors.sizes)
    if proxies:
        compared = promising({size: space.cycles(size) for size in compared})
        assert KERNELS < len({kernel_of(size) for size in compared}) < len(set(map(kernel_of, space.survivors.sizes)))
    assert found.size == min(compared, key=Device.time_us)
    assert proxies or found.size == TileSize(12, 96, 2, 1)
    assert sorted(device.sizes) == sorted(compared) == sorted(device.prepared)
    assert {told for _, told in device.asked} == {proxies}
    assert found.record.measured == len(compared)
    blocks = {(size.tile_rows, size.cpt, size.block_threads) for size in compared}
    assert found.record.compiled == len(blocks) > len(device.asked)
    assert found.dealt is space.dealt(12)


@pytest.mark.parametrize(("mode", "proxies"), [(Mode.EC_SPMM, False), (Mode.LO_SPMM_RANK, True)])
def test_a_rank_model_leaves_ten(space: Space, mode: Mode, proxies: bool) -> None:
    device = Device()
    model = stump(FEATURES.index("tile_rows"), 30)
    found = choose(space, mode, device, model)
    assert len(device.sizes) == RANKED
    # The stump prefers more than thirty rows.
    assert min(size.tile_rows for size in device.sizes) > 30
    assert {told for _, told in device.asked} == {proxies}
    assert found.size == min(device.sizes, key=Device.time_us)
    assert found.record.measured == RANKED
    assert len(found.record.seen) == len(space.survivors.sizes)


def test_near_runs_all_launches_of_a_few_kernels(space: Space) -> None:
    device = Device()
    found = choose(space, Mode.NEAR, device)
    kernels = {(size.tile_rows, size.cpt) for size in device.sizes}
    assert len(kernels) == KERNELS == len(device.asked)
    best = min(space.survivors.sizes, key=space.cycles)
    assert (best.tile_rows, best.cpt) in kernels
    of_them = [size for size in space.survivors.sizes if (size.tile_rows, size.cpt) in kernels]
    assert sorted(device.sizes) == sorted(of_them)
    assert found.size == min(of_them, key=Device.time_us)


def test_near_assembles_one_kernel_less_where_code_is_large(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmark.impls.lo_spmm.tuning.MANY_PRODUCTS", space.problem.matrix.nnz - 1)
    device = Device()
    choose(space, Mode.NEAR, device)
    assert len({kernel_of(size) for size in device.sizes}) == KERNELS - 1


def test_near_counts_each_number_of_parts_as_a_kernel(space: Space) -> None:
    device = Device()
    few = Problem(Op.SPMM, random_csr(96, 2000, [200] * 96), 256)
    found = choose(explore(few, H200, Order.GREEDY, Pins(split=0)), Mode.NEAR, device)
    assert len({(size.tile_rows, size.cpt, size.split) for size in device.sizes}) == KERNELS == len(device.asked)
    assert min(size.split for size in device.sizes) == 1 < max(size.split for size in device.sizes)
    assert found.dealt.nnz.size == found.size.split * len(found.dealt.rows)


def test_a_sample_is_of_whole_kernels_with_all_columns_of_a_thread(space: Space) -> None:
    device = Device()
    found = choose(space, Mode.SAMPLED, device)
    kernels = {(size.tile_rows, size.cpt) for size in device.sizes}
    every = {(size.tile_rows, size.cpt) for size in space.survivors.sizes}
    assert len(every) / SAMPLED - 1 < len(kernels) <= len(every) / SAMPLED + 1
    assert {cpt for _, cpt in kernels} == {1, 2, 4}
    assert sorted(device.sizes) == [size for size in sorted(space.survivors.sizes) if kernel_of(size)[:2] in kernels]
    assert found.record.eligible == len(space.survivors.sizes) > found.record.measured == len(device.sizes)


def test_a_search_tells_compiling_from_running(space: Space) -> None:
    device = Device()
    record = choose(space, Mode.EXHAUSTIVE, device).record
    assert record.compile_s == pytest.approx(1e-3 * len(device.prepared))
    assert record.eligible == record.measured
    earlier = device.compile_s
    again = choose(space, Mode.SAMPLED, device).record
    assert again.compile_s == pytest.approx(device.compile_s - earlier)
    nothing = choose(space, Mode.ESTIMATE).record
    assert (nothing.compile_s, nothing.run_s) == (0, 0)


def test_what_cannot_be_built_has_a_reason_and_does_not_win(space: Space) -> None:
    found = choose(space, Mode.EXHAUSTIVE, Device(broken=12))
    assert found.size.tile_rows in (8, 16)
    assert {"out of luck" in one.reason for one in found.record.seen if one.config["tile_rows"] == 12} == {True}
    with pytest.raises(BuildError, match="out of luck"):
        choose(space, Mode.EXHAUSTIVE, Device(broken=-1))


def test_one_candidate_needs_no_device(space: Space) -> None:
    alone = explore(space.problem, H200, Order.NONE, Pins(8, 64, 1, 1))
    assert choose(alone, Mode.EXHAUSTIVE).size == TileSize(8, 64, 1, 1)
