"""What each mode looks at, and what it takes; times are made up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest
from problems import random_csr
from races import MadeUpTimer
from rank_fakes import stump

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, CompileError
from spmark.impls.core.interfaces import Built, Config, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.estimate import estimate
from spmark.impls.lo_spmm.rank import FEATURES
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import (
    KERNELS,
    RANKED,
    SAMPLED,
    Chooser,
    choose,
    config_of,
    kernel_of,
)
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.race import FINALISTS, Race

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture(scope="module")
def space() -> TileSpace:
    lengths = np.random.default_rng(7).binomial(200, 0.1, 600).tolist()
    return explore(Problem(Op.SPMM, random_csr(600, 200, lengths), 512), H200, Pins(split=1))


def time_us(size: TileSize) -> float:
    """Give a time of which 12 rows, 96 threads and two columns are best."""
    return 1 + abs(size.tile_rows - 12) + abs(size.threads - 96) / 32 + abs(size.cpt - 2) + size.tiles_per_block


class Device(MadeUpTimer):
    """Kernels of one M1, or all, may be broken; some candidates are lucky until they are timed again."""

    def __init__(self, broken: int = 0, lucky: Collection[TileSize] = ()) -> None:
        super().__init__(self._time_us)
        self.broken, self.lucky = broken, set(lucky)
        self.groups: list[list[TileSize]] = []
        self.prepared: list[TileSize] = []
        self.race: Race[Built] = Race(
            lambda config: Built(config=dict(config)), self, prepare=self._prepare, compiled=lambda: 7
        )

    def times_us(self, plans: Sequence[Plan], rounds: int) -> list[list[float]]:
        group = [TileSize(**plan.config) for plan in plans]
        if not set(group) & set(self.sizes):
            self.groups.append(group)
        return super().times_us(plans, rounds)

    def alternating_us(self, plans: Sequence[Plan]) -> list[list[float]]:
        self.lucky.clear()
        return super().alternating_us(plans)

    def _prepare(self, configs: Sequence[Config]) -> None:
        assert not self.groups, "everything is compiled before the first candidate runs"
        self.prepared += [TileSize(**config) for config in configs]

    def _time_us(self, config: Config) -> float:
        size = TileSize(**config)
        if size.tile_rows == self.broken or self.broken < 0:
            raise CompileError("lo_spmm", "ptxas", "out of luck")
        return time_us(size) * (0.1 if size in self.lucky else 1)

    @property
    def finalists(self) -> list[TileSize]:
        (configs,) = self.finals
        return [TileSize(**config) for config in configs]

    @property
    def sizes(self) -> list[TileSize]:
        return [size for group in self.groups for size in group]


def test_the_estimate_runs_nothing(space: TileSpace) -> None:
    found = choose(space, Chooser.ESTIMATE)
    assert found.size == min(space.survivors.sizes, key=lambda size: estimate(space, size))
    assert found.record.candidates == space.survivors.counts["space"]
    assert (found.record.compiled, found.record.measured) == (0, 0)
    assert len(found.record.seen) == space.survivors.counts["balance"]


@pytest.mark.parametrize("mode", [Chooser.EXHAUSTIVE, Chooser.NEAR, Chooser.PAPER])
def test_the_fastest_are_measured_again_before_one_is_taken(space: TileSpace, mode: Chooser) -> None:
    first = Device()
    choose(space, mode, first.race)
    lucky = sorted(first.sizes, key=time_us)[FINALISTS + 3]
    device = Device(lucky=[lucky])
    found = choose(space, mode, device.race)
    assert lucky in device.finalists
    assert len(device.finalists) == FINALISTS
    assert time_us(found.size) == min(map(time_us, device.finalists)) < time_us(lucky)
    again = {key: len(one.samples_us) for key, one in enumerate(found.record.seen) if len(one.samples_us) > 50}
    assert len(again) == FINALISTS


@pytest.mark.parametrize("mode", [Chooser.EXHAUSTIVE, Chooser.PAPER])
def test_every_candidate_is_run_and_the_fastest_taken(space: TileSpace, mode: Chooser) -> None:
    device = Device()
    found = choose(space, mode, device.race)
    compared = list(space.survivors.sizes)
    assert time_us(found.size) == min(map(time_us, compared))
    assert found.size == TileSize(12, 96, 2, 1)
    assert sorted(device.sizes) == sorted(compared) == sorted(device.prepared)
    assert found.record.measured == len(compared)
    assert (found.record.compiled, found.record.cores) == (7, cores())


@pytest.mark.parametrize("mode", [Chooser.EC_SPMM, Chooser.PAPER_RANK])
def test_a_rank_model_leaves_ten(space: TileSpace, mode: Chooser) -> None:
    device = Device()
    model = stump(FEATURES.index("tile_rows"), 30)
    found = choose(space, mode, device.race, model)
    assert len(device.sizes) == RANKED
    # The stump prefers more than thirty rows.
    assert min(size.tile_rows for size in device.sizes) > 30
    assert found.size == min(device.sizes, key=time_us)
    assert found.record.measured == RANKED
    assert len(found.record.seen) == len(space.survivors.sizes)


def test_near_runs_all_launches_of_a_few_kernels(space: TileSpace) -> None:
    device = Device()
    found = choose(space, Chooser.NEAR, device.race)
    assert found.launched.config == config_of(found.size)  # the plan that won is kept
    kernels = {(size.tile_rows, size.cpt) for size in device.sizes}
    assert len(kernels) == KERNELS == len(device.groups)
    best = min(space.survivors.sizes, key=lambda size: estimate(space, size))
    assert (best.tile_rows, best.cpt) in kernels
    of_them = [size for size in space.survivors.sizes if (size.tile_rows, size.cpt) in kernels]
    assert sorted(device.sizes) == sorted(of_them)
    assert found.size == min(of_them, key=time_us)


def test_a_sample_is_of_whole_kernels_with_all_columns_of_a_thread(space: TileSpace) -> None:
    device = Device()
    found = choose(space, Chooser.SAMPLED, device.race)
    kernels = {(size.tile_rows, size.cpt) for size in device.sizes}
    every = {(size.tile_rows, size.cpt) for size in space.survivors.sizes}
    assert len(every) / SAMPLED - 1 < len(kernels) <= len(every) / SAMPLED + 1
    assert {cpt for _, cpt in kernels} == {1, 2, 4}
    assert sorted(device.sizes) == [size for size in sorted(space.survivors.sizes) if kernel_of(size)[:2] in kernels]
    assert found.record.eligible == len(space.survivors.sizes) > found.record.measured == len(device.sizes)


def test_what_is_told_of_a_search_is_of_every_candidate(space: TileSpace) -> None:
    device = Device()
    record = choose(space, Chooser.SAMPLED, device.race).record
    assert [one.config for one in record.seen] == [config_of(size) for size in space.survivors.sizes]
    assert [one.predicted for one in record.seen] == [estimate(space, size) for size in space.survivors.sizes]
    assert {TileSize(**one.config) for one in record.seen if one.samples_us} == set(device.sizes)
    assert (record.candidates, record.eligible) == (space.considered, len(space.survivors.sizes))
    assert record.compile_s > 0
    assert record.run_s > 0
    nothing = choose(space, Chooser.ESTIMATE).record
    assert (nothing.compiled, nothing.cores, nothing.compile_s, nothing.run_s) == (0, 1, 0, 0)


def test_what_cannot_be_built_has_a_reason_and_does_not_win(space: TileSpace) -> None:
    found = choose(space, Chooser.EXHAUSTIVE, Device(broken=12).race)
    assert found.size.tile_rows in (8, 16)
    assert {"out of luck" in one.reason for one in found.record.seen if one.config["tile_rows"] == 12} == {True}
    with pytest.raises(BuildError, match="out of luck"):
        choose(space, Chooser.EXHAUSTIVE, Device(broken=-1).race)
