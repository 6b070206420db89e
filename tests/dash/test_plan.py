"""The implementation ``dash``: which configs are measured and built, what is kept, and what is refused with reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dash_fakes import keep_model
from problems import matrices, problems, random_csr, run_checked
from races import MadeUpTimer

from spmark.impls.core import errors
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import BuildError, SweepError
from spmark.impls.core.interfaces import Built, Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.dash import finding
from spmark.impls.dash.cost_models import platform_scores
from spmark.impls.dash.finding import SHIPPED, find_model, own_model
from spmark.impls.dash.plan import Dash
from spmark.impls.dash.weights import load
from spmark.impls.runtime.device import find
from spmark.impls.sparsetir.platform import CudaPlatform
from spmark.impls.table import create, find_platform
from spmark.impls.taco_cpu.platform import CpuPlatform
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import key_of

pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")

MATRIX = random_csr(70, 90, [i % 12 for i in range(70)])
HOST, RING = find("cpu"), find("host-simt")
GPU = RING.model_copy(update={"kind": DeviceKind.CUDA, "name": "made-up"})
PROBLEMS = {op: Problem(op, MATRIX, 32) for op in Op}
Keep = Callable[..., Path]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Give what writes a model into an empty cache."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))

    return keep_model


def ranked(how: Dash, name: str, problem: Problem) -> list[str]:
    """Give the keys of what the implementation draws, in the order of the model's scores."""
    platform = find_platform(name)
    configs = [platform.default(problem), *platform.space(problem).sample(how.seed, how.configs)]
    scores = platform_scores(platform, problem.op).score(problem, configs)
    return list(dict.fromkeys(key_of(configs[at]) for at in np.argsort(scores, kind="stable")))


def cost(config: Config) -> float:
    """Give different times to different configs, whatever a model thinks of them."""
    return 10.0 + sum(map(ord, key_of(config))) % 97 / 10


class MadeUp:
    """Stands in for a platform's measuring and building, on made-up times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, cost: Callable[[Config], float] = cost) -> None:
        self.timer, self.built = MadeUpTimer(cost), list[Built]()

        def build(config: Config) -> Built:
            self.built.append(Built(config=dict(config)))
            return self.built[-1]

        def open_race(self_: Any, problem: Problem, device: Any, **options: Any) -> Race[Built]:
            return Race(build, self.timer, **options)

        monkeypatch.setattr(kind, "open_race", open_race)
        monkeypatch.setattr(kind, "plan", lambda self_, problem, device, config: Built(config=dict(config)))


@pytest.mark.parametrize("op", Op)
def test_on_a_cpu_the_fastest_of_the_model_s_first_is_built(op: Op, keep: Keep) -> None:
    keep("cpu", op)
    how = Dash(top=2, configs=30)
    assert how.unsupported(PROBLEMS[op], HOST) is None
    built = how.build(PROBLEMS[op], HOST)
    run_checked(built, PROBLEMS[op])
    assert built.search is not None
    timed = [one for one in built.search.seen if one.samples_us]
    order = [key_of(one.config) for one in built.search.seen]
    assert len(timed) == 2
    assert order == ranked(how, "cpu", PROBLEMS[op])[: len(order)]
    assert [one.predicted for one in built.search.seen] == sorted(one.predicted for one in built.search.seen)
    assert built.search.eligible == 31
    assert {"features", "select", "search", "convert", "compile"} <= built.phases_s.keys()
    chosen = {name: value for name, value in built.config.items() if name not in ("threads", "model")}
    assert key_of(chosen) in {key_of(one.config) for one in timed}
    assert built.config["model"] == platform_scores(find_platform("cpu"), op).digest[:16]


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("top", [1, 5])
def test_on_a_gpu_the_fastest_of_the_model_s_first_is_built(
    top: int, op: Op, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("cuda", op)
    made = MadeUp(monkeypatch, CudaPlatform)
    how = Dash(top=top, configs=40)
    built = how.build(PROBLEMS[op], GPU)
    asked = [key_of(config) for config in made.timer.asked]
    assert asked == ranked(how, "cuda", PROBLEMS[op])[:top]
    least = min(made.timer.asked, key=cost)
    assert key_of({name: value for name, value in built.config.items() if name != "model"}) == key_of(least)
    assert any(built is one for one in made.built), "what won is not built again"
    assert min(built.phases_s[name] for name in ("features", "select", "search")) > 0


def test_others_are_measured_for_configs_that_cannot_be_built(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("cpu", Op.SPMM)
    how, problem = Dash(top=3, configs=40), PROBLEMS[Op.SPMM]
    order = ranked(how, "cpu", problem)

    def picky(config: Config) -> float:
        if order.index(key_of(config)) in (0, 2, 3):
            raise BuildError("expected at most 1 byte")
        return cost(config)

    MadeUp(monkeypatch, CpuPlatform, picky)
    search = how.build(problem, HOST).search
    assert search is not None
    assert [order.index(key_of(one.config)) for one in search.seen] == [0, 1, 2, 3, 4, 5]
    assert [one.reason for one in search.seen if not one.samples_us] == ["expected at most 1 byte"] * 3


def test_where_no_config_can_be_built_the_reasons_are_told(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("cpu", Op.SPMM)

    def never(config: Config) -> float:
        raise BuildError("no room")

    MadeUp(monkeypatch, CpuPlatform, never)
    with pytest.raises(BuildError, match="expected one of 8 candidates to build and to be right, found none: no room"):
        Dash(configs=7).build(PROBLEMS[Op.SPMM], HOST)


def test_a_search_is_kept_for_its_model_and_its_tunables(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("cpu", Op.SPMM)
    made, problem = MadeUp(monkeypatch, CpuPlatform), PROBLEMS[Op.SPMM]
    how = Dash(configs=10)
    first = how.build(problem, HOST)
    paid = len(made.timer.asked)
    again = how.build(problem, HOST)
    assert (len(made.timer.asked), again.config, again.search) == (paid, first.config, first.search)
    assert {name: again.phases_s[name] for name in ("features", "select", "search")} == {
        name: first.phases_s[name] for name in ("features", "select", "search")
    }
    replace(how, seed=3).build(problem, HOST)
    assert len(made.timer.asked) == 2 * paid
    keep("cpu", Op.SPMM, seed=2)
    how.build(problem, HOST)
    assert len(made.timer.asked) == 3 * paid


@pytest.mark.full
@pytest.mark.parametrize("op", Op)
def test_on_the_host_ring_the_model_s_first_is_built_unmeasured(op: Op, keep: Keep) -> None:
    keep("cuda", op)
    how, problem = Dash(configs=20), problems()[f"{op}-under_32_rows-J32-float32"]
    assert how.unsupported(problem, RING) is None
    built = how.build(problem, RING)
    run_checked(built, problem)
    assert built.search is None
    first = json.loads(ranked(how, "cuda", problem)[0])
    assert {name: first[name] for name in built.config if name in first}.items() <= built.config.items()
    assert len(first.keys() & built.config.keys()) > 3


@pytest.mark.full
@pytest.mark.parametrize("op", Op)
def test_a_matrix_without_non_zeros_is_measured_nowhere(op: Op, keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("cuda", op)
    made = MadeUp(monkeypatch, CudaPlatform)
    built = Dash(configs=10).build(Problem(op, matrices()["no_nonzeros"], 32), GPU)
    assert not made.timer.asked
    assert built.search is None


@pytest.mark.parametrize("device", [HOST, RING], ids=["cpu", "ring"])
def test_without_a_model_the_command_that_makes_one_is_told(
    device: Any, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "SHIPPED", tmp_path / "none")
    name = "cpu" if device is HOST else "cuda"
    reason = Dash().unsupported(PROBLEMS[Op.SDDMM], device)
    assert reason is not None
    assert f"expected a model of sddmm on {name}, found none: bring the published ones with" in reason
    assert "or train one with spmark study train dash --source" in reason
    assert "--op sddmm, without --out, on samples of spmark study collect, those of the target with" in reason
    keep(name, Op.SPMM)
    assert Dash().unsupported(PROBLEMS[Op.SDDMM], device) == reason
    keep(name, Op.SDDMM)
    assert Dash().unsupported(PROBLEMS[Op.SDDMM], device) is None


def test_what_the_platform_refuses_is_refused(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("cpu", Op.SPMM)
    monkeypatch.setattr("spmark.impls.taco_cpu.plan.gcc_missing", lambda: "no g++")
    assert Dash().unsupported(PROBLEMS[Op.SPMM], HOST) == "no g++"
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    reason = Dash().unsupported(PROBLEMS[Op.SPMM], HOST)
    assert reason == "torch and safetensors are not installed: pip install -e '.[dash]' in a checkout"


def test_an_own_model_stands_before_one_that_ships(keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SHIPPED", tmp_path / "shipped")
    assert find_model("cpu", Op.SPMM) is None
    shipped = keep("cpu", Op.SPMM, path=tmp_path / "shipped" / "cpu-spmm.safetensors")
    assert find_model("cpu", Op.SPMM) == shipped
    fetched = keep("cpu", Op.SDDMM, path=own_model("cpu", Op.SDDMM).parent / "published" / "cpu-sddmm.safetensors")
    assert find_model("cpu", Op.SDDMM) == fetched
    fetched.unlink()
    assert find_model("cpu", Op.SDDMM) is None
    own = keep("cpu", Op.SPMM)
    assert find_model("cpu", Op.SPMM) == own != shipped


@pytest.mark.parametrize("op", [Op.SPMM, Op.SDDMM])
@pytest.mark.parametrize("platform", ["cpu", "cuda", "spade_sim"])
def test_a_model_ships_for_every_platform_and_operator(
    platform: str, op: Op, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    of = find_platform(platform)
    problem = PROBLEMS[op]
    scores = platform_scores(of, op).score(problem, list(of.space(problem).sample(0, 20)))
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 1
    learnt = {one.platform: one.matrices for one in load(SHIPPED / f"{platform}-{op}.safetensors").card.trained_on}
    assert learnt == {"cpu": {Op.SPMM: 99, Op.SDDMM: 98}[op]} | ({} if platform == "cpu" else {platform: 5})


@pytest.mark.parametrize(
    ("config", "message"),
    [({"top": 0}, "top of at least 1, found 0"), ({"configs": -1}, "configs of at least 0, found -1")],
)
def test_illegal_tunables_are_refused(config: Config, message: str) -> None:
    with pytest.raises(SweepError, match=f"implementation dash: expected {message}"):
        create("dash", config)
