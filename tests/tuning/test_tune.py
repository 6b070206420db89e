"""`tune` on a made-up GPU: the plan that won is the plan that is given, pins hold, and a kept config is built again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problems import random_csr, run_checked
from races import MadeUpTimer

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Built, Config
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.direct.plan import Direct
from spmark.impls.kernels.family import KernelFamily, OneFormat, tiles_of
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.blocks import SparseTirBsr
from spmark.impls.sparsetir.plan import SparseTir
from spmark.impls.tuning import tune as tuning
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.timer import PlanTimer
from spmark.impls.tuning.tune import builder, space_of, tune

PROBLEM = Problem(Op.SPMM, random_csr(8, 8, [2] * 8), 32)
GPU = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA, "name": "made-up"})


class Made(Built):
    """A plan, and what it shares."""

    arrays = ("indices",)


class Kernel:
    """Two families whose plans count; a format of size 3 is refused."""

    def __init__(self) -> None:
        self.built: list[Config] = []
        self.converted: list[int] = []
        self.rows = KernelFamily("rows", lambda *_: {"rows": (2, 1)}, self.opened, self.default)
        axes = {"size": (1, 2, 3), "tile": ({}, {"lanes": 8, "vector": 4})}
        self.blocks = KernelFamily("size", lambda *_: axes, self.opened_blocks)

    @staticmethod
    def default(problem: Problem, pinned: Config) -> Config:
        return {"rows": 1, **pinned}

    def opened(self, problem: Problem, target: Any) -> Any:
        def build(config: Config) -> Made:
            self.built.append(config)
            return Made(config=dict(config), phases_s={"upload": 0.0})

        return build

    def opened_blocks(self, problem: Problem, target: Any) -> Any:
        plain = self.opened(problem, target)

        def convert(form: Config) -> int:
            self.converted.append(form["size"])
            if form["size"] == 3:
                raise BuildError("too large")
            return int(form["size"])

        def build(size: int, form: Config, schedule: Config, arrays: Sequence[Any]) -> Any:
            return plain({**form, **schedule, "shared": bool(arrays)})

        return OneFormat(("size",), convert, build)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


def cost(config: Config) -> float:
    return float(10 * config.get("size", 9) - ("lanes" in config))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    def open_race(problem: Problem, device: object, families: Any) -> Race[Any]:
        return Race(builder(problem, None, families), MadeUpTimer(cost))  # type: ignore[arg-type]

    monkeypatch.setattr(tuning, "open_race", open_race)
    monkeypatch.setattr(tuning, "open_target", lambda device: None)
    return Kernel()


def tuned(kernel: Kernel, **how: Any) -> Any:
    families = [kernel.rows, kernel.blocks]
    pinned = how.get("pinned")

    def strategy(race: Race[Any]) -> None:
        for family in families:
            exhaustive(race, space_of(family, PROBLEM, pinned).configs())

    return tune(PROBLEM, GPU, families, strategy, owner="sparsetir", **how)


def test_the_winner_is_built_once_and_its_format_converted_once(kernel: Kernel) -> None:
    plan = tuned(kernel)
    assert plan.config == {"size": 1, "lanes": 8, "vector": 4, "shared": True}
    assert kernel.built.count(plan.config) == 1
    assert kernel.converted == [1, 2, 3], "a refused format is asked for once"
    assert plan.phases_s["convert"] > 0, "the shared conversion is part of what the plan takes alone"
    assert plan.search.candidates == 8


def test_a_kept_result_is_built_without_a_race_and_only_under_the_same_facts(kernel: Kernel) -> None:
    first = tuned(kernel)
    kernel.built.clear()
    again = tuned(kernel)
    assert len(kernel.built) == 1
    assert (again.search, again.phases_s["search"]) == (first.search, first.phases_s["search"])
    kernel.built.clear()
    tuned(kernel, facts={"mode": "paper"})
    assert len(kernel.built) > 1


def test_what_is_pinned_is_neither_searched_nor_taken_from_a_file(kernel: Kernel) -> None:
    plan = tuned(kernel, pinned={"size": 2})
    assert {config["size"] for config in kernel.built if "size" in config} == {2}
    assert plan.config["size"] == 2
    (path,) = [one for one in Path(tuning.PlanCache("sparsetir", PROBLEM, GPU, {"size": 2}).path.parent).iterdir()]
    kept = tuning.PlanCache("sparsetir", PROBLEM, GPU, {"size": 2})
    assert kept.path == path
    tuning.PlanCache("sparsetir", PROBLEM, GPU, {"size": 1}).write(kept.read())  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="expected a config that a search of sparsetir may give"):
        tuned(kernel, pinned={"size": 1})


def test_where_nothing_can_be_measured_the_first_default_is_built(kernel: Kernel) -> None:
    assert tuned(kernel, measured=False, pinned={"rows": 2}).config == {"rows": 2}
    plan = tune(PROBLEM, GPU, [kernel.blocks], exhaustive, owner="sparsetir", measured=False)  # type: ignore[arg-type]
    assert plan.config == {"size": 1, "shared": False}, "without a default of its own, the first of the space"
    assert plan.search is None


@pytest.mark.parametrize(
    ("width", "expected"),
    [(64, [(4, 1, 8), (4, 1, 16), (4, 2, 8), (1, 1, 8), (1, 1, 16), (1, 2, 8), (1, 2, 16)]), (4, [(1, 1, 8)])],
)
def test_tiles_are_those_that_j_fills_or_the_narrowest(width: int, expected: list[tuple[int, ...]]) -> None:
    assert [tuple(tile.values()) for tile in tiles_of(width, (4, 1), (8, 16), (1, 2))] == expected


class HostClock(PlanTimer):
    """The clock of a GPU that the host ring plays."""

    def __init__(self, problem: Problem, device: object, seed: int = 0) -> None:
        super().__init__(problem, find("host-simt"), seed)

    def times_us(self, plans: Any, rounds: int) -> list[list[float]]:
        return super().times_us(plans, 2)

    def alternating_us(self, plans: Any) -> list[list[float]]:
        return super().times_us(plans, 3)


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "problem"),
    [
        (Direct(search=True), Problem(Op.SPMM, random_csr(12, 16, [3] * 12), 8)),
        (SparseTir(mode="paper"), Problem(Op.SPMM, random_csr(12, 16, [3] * 12), 8)),
        (SparseTirBsr(block_rows=16), Problem(Op.SDDMM, random_csr(40, 40, [3] * 40), 8, DType.FLOAT16)),
    ],
    ids=["direct", "sparsetir", "sparsetir_bsr"],
)
def test_what_wins_is_right_and_like_what_is_built_from_disk(
    how: Any, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_target(find("host-simt"))
    monkeypatch.setattr(tuning, "open_target", lambda device: host)
    monkeypatch.setitem(sys.modules, "spmark.impls.tuning.timer", SimpleNamespace(timer_of=HostClock))
    won, again = (how.build(problem, GPU) for _ in range(2))
    for plan in (won, again):
        run_checked(plan, problem)
    assert won.search.measured == won.search.candidates > 1
    assert (won.config, won.search, won.device_bytes) == (again.config, again.search, again.device_bytes)
    assert won.phases_s.keys() == again.phases_s.keys()
    assert won.phases_s["search"] == again.phases_s["search"] > 0
