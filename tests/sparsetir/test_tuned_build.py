"""What `build` does around a search, on a made-up GPU: what fails is passed over, what was found is kept and told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problems import random_csr
from races import MadeUpTimer

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, CompileError
from spmark.impls.core.interfaces import Built, Config
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.block_spmm import block_instance
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance
from spmark.impls.sparsetir import blocks
from spmark.impls.sparsetir.blocks import SparseTirDbsr
from spmark.impls.sparsetir.plan import SparseTir
from spmark.impls.tuning import tune
from spmark.impls.tuning.race import Race

MATRIX = random_csr(70, 90, [i % 12 for i in range(70)])
GPU = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA, "name": "made-up"})
HYB = Problem(Op.SPMM, MATRIX, 32)
BLOCKS = Problem(Op.SPMM, MATRIX, 64, DType.FLOAT16)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Give what hyb's search measures: partitions run out of memory, narrow buckets do not compile."""
    configs: list[Config] = []

    def cost(config: Config) -> float:
        configs.append(config)
        if config["c"] > 1:
            raise MemoryError("no room")
        if config["max_width"] < 32:
            raise CompileError("ell_buckets.cu", "spmm_ell_buckets<>", "ptxas died")
        if config["max_width"] == 64:
            raise BuildError("wrong result: expected an error of at most 1, found 2")
        return 10.0 + config["max_width"] / 1000

    class Once(MadeUpTimer):
        """Asks for the cost of a config when it is checked alone."""

        def _samples(self, plan: Any, rounds: int) -> Iterator[float]:
            yield from [10.0 + plan.config["max_width"] / 1000] * rounds

    def open_race(problem: Problem, device: DeviceSpec, families: object) -> Race[Built]:
        assert device is GPU
        return Race(lambda config: Built(config=dict(config)), Once(cost))

    monkeypatch.setattr(tune, "open_race", open_race)
    monkeypatch.setattr(tune, "open_target", lambda device: None)
    monkeypatch.setattr(tune, "builder", lambda *_: lambda config: Built(config=dict(config)))
    return configs


def test_hyb_passes_over_what_fails_and_says_why(asked: list[Config]) -> None:
    built = SparseTir().build(HYB, GPU)
    assert (built.config["c"], built.config["max_width"]) == (1, 32)
    assert built.search is not None
    reasons = {candidate.reason.split("\n")[-1].split(":")[0] for candidate in built.search.seen}
    assert reasons == {"", "no room", "ptxas died", "wrong result"}
    # Where memory is short, a candidate is tried once more without the plans of the finalists.
    assert built.search.candidates == len({str(config) for config in asked})
    assert built.search.measured == sum(not candidate.reason for candidate in built.search.seen)


def test_what_was_found_is_kept_with_its_cost(asked: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    first = SparseTir().build(HYB, GPU)
    paid = len(asked)
    assert paid > 0
    again = SparseTir().build(HYB, GPU)
    assert len(asked) == paid, "nothing is measured again"
    assert (again.config, again.search) == (first.config, first.search)
    assert again.phases_s["search"] == first.phases_s["search"] > 0
    monkeypatch.setattr("spmark.impls.tuning.cache.implementation_version", lambda package: "new")
    SparseTir().build(HYB, GPU)
    assert len(asked) == 2 * paid, "other code is searched anew"


class Compiler:
    """A target on which some kernels do not compile, and what was asked of it."""

    def __init__(self, fails: Callable[[Instance], bool]) -> None:
        self.fails, self.together = fails, 0

    def begin(self, instances: Sequence[Instance]) -> None:
        self.together = max(self.together, len(instances))

    def load(self, instances: Sequence[Instance]) -> list[object]:
        for instance in instances:
            if self.fails(instance):
                raise CompileError("block_spmm.cu", instance.expression, "ptxas died")
        return [object()] * len(instances)


def block_cost(config: Config) -> float:
    """Give times that are best where a plan is wrong."""
    if config["block_rows"] == 64:
        raise BuildError("wrong result")
    return float(config["block_rows"] + config["block_cols"] / 10 + config["turned"])


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    found = Compiler(lambda instance: instance.values["rows"] == 32)

    def block_plan(
        problem: Problem, target: Compiler, held: Any, form: Config, arrays: Any = (), **tunables: Any
    ) -> Any:
        config = {**form, **tunables}
        target.load([block_instance(problem, config["block_rows"], config["tile"], config["depth"], False)])
        made = Built(config=config)
        made.arrays = []
        return made

    timer = SimpleNamespace(timer_of=lambda problem, device: MadeUpTimer(block_cost))
    monkeypatch.setitem(sys.modules, "spmark.impls.tuning.timer", timer)
    monkeypatch.setattr(tune, "open_target", lambda device: found)
    monkeypatch.setattr(blocks, "BlockSpmmPlan", block_plan)
    return found


def test_blocks_that_do_not_compile_are_passed_over(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = SparseTirDbsr.convert

    def without_room(self: SparseTirDbsr, problem: Problem, config: Config) -> Any:
        if config["block_rows"] == 16:
            raise MemoryError("no room")
        return convert(self, problem, config)

    monkeypatch.setattr(SparseTirDbsr, "convert", without_room)
    built = SparseTirDbsr().build(BLOCKS, GPU)
    assert compiler.together > 1, "the kernels of the space are compiled side by side"
    assert built.search is not None
    reasons = {one.config["block_rows"]: one.reason.split("\n")[-1] for one in built.search.seen}
    assert reasons == {16: "no room", 32: "ptxas died", 64: "wrong result", 96: "", 128: ""}
    assert built.config["block_rows"] == 96


def test_the_papers_mode_measures_its_space_alone(asked: list[Config]) -> None:
    built = SparseTir(mode="paper", k=5).build(HYB, GPU)
    assert {config["c"] for config in asked} == {1, 2, 4, 8, 16}
    assert {config["max_width"] for config in asked} == {32}
    assert built.search is not None
    assert built.search.candidates == 5
    assert (built.config["c"], built.config["tail_in_last"]) == (1, True)
