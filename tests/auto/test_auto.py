"""What `auto` chooses: by rule, learned and in a race; what it keeps, and how well it would have chosen on record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scripts_by_name import load_script

from spmark.impls.auto import model, plan, race
from spmark.impls.auto.model import TRAINED_ON, Expected, Trees, ranked, worth_a_race
from spmark.impls.auto.plan import Auto
from spmark.impls.auto.portfolio import CELL, CSR, PORTFOLIO, Features, by_rule
from spmark.impls.auto.race import Choice
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.files import cache_folder
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.runtime import compile as compiler
from spmark.impls.runtime.device import find
from spmark.impls.table import create
from spmark.impls.tuning import timer
from spmark.suite.conformance import Place, check_result

GPU = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA, "name": "a GPU of tomorrow"})


def problem(op: str = "spmm", width: int = 32, uneven: bool = False) -> Problem:
    matrix = sparse.random(60, 900 if uneven else 40, 0.1, format="lil", dtype=np.float32, random_state=1)
    if uneven:
        matrix[:50] = 0
        matrix[3] = 1
    return Problem(op, matrix.tocsr(), width)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test without choices of others, but with the kernels that they compiled."""
    kernels = cache_folder()
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / kernels.name).symlink_to(kernels)
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize(("mode", "device"), [(m, d) for m in plan.Mode for d in ("host-simt", "cpu")])
def test_every_mode_builds_a_plan_that_is_right(op: Op, mode: str, device: str) -> None:
    given, spec = problem(op), find(device)
    made = create("auto", {"mode": mode}).build(given, spec)
    assert made.config["mode"] == mode
    assert made.config["chosen"] in {"direct", "liteform", "sparsetir", "stile", "scipy_cpu", "numba_cpu"}
    check_result(made, given, Place(spec))


def test_the_rule_reads_sizes_alone() -> None:
    sparse, full = Features(1000, 1000, 8000, 800, 20.0), Features(1000, 1000, 500_000, 520, 20.0)
    few_long, more_long = (Features(rows, 4096, rows * 200, 260, 20.0) for rows in (512, 2048))
    cases = [(sparse, 128), (full, 128), (few_long, 128), (few_long, 512), (more_long, 128)]
    chosen = [by_rule(Op.SPMM, one, width, DType.FLOAT32, DeviceKind.CUDA)[0] for one, width in cases]
    assert chosen == [CSR, PORTFOLIO[Op.SPMM]["cublas"], CELL, CSR, CSR]
    assert by_rule(Op.SDDMM, sparse, 128, DType.FLOAT32, DeviceKind.CUDA)[0].config == {"tuned": False}


def test_few_runs_take_what_is_built_fast() -> None:
    features = Features(100_000, 100_000, 1_000_000, 60, 4.0)
    once, often = (
        ranked(model.read()[Op.SPMM], features, Op.SPMM, 128, DType.FLOAT32, runs=runs)[0] for runs in (1, 0)
    )
    assert once.choice in (CSR, CELL), "no search pays within one run"
    assert once.build_s < often.build_s
    assert once.us >= often.us


class Times:
    """Made-up times by implementation, and how often a plan was timed."""

    us: dict[str, float] = {}

    def __init__(self, *_: Any) -> None:
        pass

    def check(self, made: Any) -> None:
        pass

    def times_us(self, plans: Any, rounds: int) -> list[list[float]]:
        return [[self.us.get(one.name, 50.0)] * rounds for one in plans]

    def alternating_us(self, plans: Any) -> list[list[float]]:
        return self.times_us(plans, 9)


class Fake(Built):
    """A plan that remembers whose it is."""

    def __init__(self, name: str) -> None:
        super().__init__(phases_s={"convert": 0.001})
        self.name = name


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace building and timing; give the names of what was built, in order."""
    names: list[str] = []

    def build(given: Any, device: Any, choice: Choice, held: Any = None) -> race.Chosen:
        names.append(choice.name)
        return race.Chosen(choice, Fake(choice.name))  # type: ignore[arg-type]

    monkeypatch.setattr(race, "built", build)
    monkeypatch.setattr(race, "import_module", lambda name: None)
    monkeypatch.setattr(compiler, "begin", lambda kernels: None)
    monkeypatch.setattr(timer, "PlanTimer", Times)
    monkeypatch.setattr(Times, "us", {})
    return names


def test_a_race_measures_candidates_and_the_baseline_and_keeps_the_plan(built: list[str]) -> None:
    known, given = GPU.model_copy(update={"name": TRAINED_ON}), replace(problem(), dtype=DType.FLOAT16)
    Times.us = {"stile": 10.0}
    chosen, _ = Auto("race").choose(given, known)
    assert len(built) == 4
    assert built[0] == "cusparse_best", "which waits for no compiler"
    if "stile" in built:
        assert chosen.choice.name == "stile"
    assert chosen.plan.name == chosen.choice.name, "the plan that won is the plan that is given"  # type: ignore[attr-defined]
    again, _ = Auto("race").choose(given, known)
    assert len(built) == 5, "a second choice builds the winner alone"
    assert again.choice == chosen.choice


def test_loops_of_all_candidates_are_imported_before_the_first_is_built(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "import_module", built.append)
    choices = [Choice("direct"), Choice("stile"), Choice("sparsetir")]
    race.fastest(problem(), GPU, choices)
    loops: Any = create("stile").loops  # type: ignore[attr-defined]
    assert built == [*loops, "sparsetir", "direct", "stile"]


@pytest.mark.parametrize(("cores", "most"), [(2, 8), (64, 256)])
def test_kernels_of_all_candidates_are_begun_before_the_first_is_built(
    built: list[str], monkeypatch: pytest.MonkeyPatch, cores: int, most: int
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(compiler, "begin", lambda kernels: begun.extend([*kernels, *built]))
    monkeypatch.setattr(race, "allowed_cores", lambda: range(cores))
    choices = [Choice("cusparse_best"), Choice("direct", {"search": True}), Choice("sparsetir")]
    race.fastest(problem(), GPU, choices)
    named = dict.fromkeys(one for choice in choices[1:] for one in choice.made().ahead(problem()))
    assert [one[1] for one in begun[:3]] == ["draw<float, 256>", "gate<32>", "take<float, 256>"], "they come first"
    assert begun[3:] == [(one.template.source, one.expression, GPU.arch) for one in named][:most]


def test_kernels_are_begun_where_no_race_is_kept(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(compiler, "begin", begun.append)  # of what measures, and of the candidates
    auto, given = Auto("race"), problem()
    auto.begin(given, GPU)
    assert (len(begun), built) == (2, [])
    auto.choose(given, GPU)
    assert len(begun) == 4
    auto.begin(given, GPU)
    assert len(begun) == 4, "what was raced before is built without a search"
    for other, mode in ((problem(width=64), "race"), (given, "rule")):
        Auto(mode).begin(other, GPU)
    assert len(begun) == 6, "a rule measures nothing"
    auto.begin(given, find("cpu"))
    assert len(begun) == 6


def test_float32_races_no_twin_and_no_second_that_is_expected_to_be_clearly_slower() -> None:
    times = {"stile": 100.0, "sparsetir": 102.0, "direct": 107.0, "direct searched": 107.05}
    named = [Expected(PORTFOLIO[Op.SPMM][name], us, 1.0) for name, us in times.items()]

    def raced(dtype: DType) -> list[str]:
        return [one.choice.name for one in worth_a_race(named, dtype)]

    assert raced(DType.FLOAT32) == ["sparsetir", "direct"]
    assert raced(DType.FLOAT16) == ["stile", "sparsetir", "direct"]
    named[2] = Expected(named[2].choice, 107.2, 1.0)
    assert raced(DType.FLOAT32) == ["sparsetir"]
    assert raced(DType.FLOAT16) == ["stile", "sparsetir", "direct"]
    named[0] = Expected(named[0].choice, 98.0, 1.0)
    assert raced(DType.FLOAT32) == ["stile", "sparsetir"]


def test_the_budget_ends_a_race(built: list[str]) -> None:
    Auto("race", budget_s=1e-9).choose(problem(), GPU)
    assert len(built) == 1


def test_an_unknown_gpu_is_checked_by_a_race_with_the_rule(built: list[str]) -> None:
    given, ruled = problem(uneven=True), "direct"
    Times.us = {ruled: 20.0}
    made: Any = Auto("learned").build(given, GPU)
    expected = ranked(model.read()[Op.SPMM], Features.of(given.matrix), Op.SPMM, 32, DType.FLOAT32, runs=0)[
        0
    ].choice.name
    assert built == [expected, ruled], "what is learned, and the rule's choice"
    assert made.config["chosen"] in built
    assert TRAINED_ON in made.config["checked"]
    built.clear()
    known: Any = Auto("learned").build(given, GPU.model_copy(update={"name": TRAINED_ON}))
    assert built == [expected]
    assert "checked" not in known.config


def test_trees_walk_to_the_leaf() -> None:
    flat = Trees(
        np.array([0, 3], np.int32), np.array([0, -1, -1, -1], np.int16), np.array([1.5, 0, 0, 0]),
        np.array([1, 0, 0, 0], np.int32), np.array([2, 0, 0, 0], np.int32), np.array([0, 10.0, 20.0, 1.0]),
        np.zeros((1, 2)),
    )  # fmt: skip
    assert flat.predict(np.array([[1.0], [2.0]])).tolist() == [11.0, 21.0]


def test_selection_looks_at_no_index() -> None:
    matrix = problem().matrix
    blind = Csr(matrix.shape, matrix.indptr, np.full_like(matrix.indices, -1), matrix.values)
    assert Features.of(blind) == Features.of(matrix)


def test_shares_on_record() -> None:
    """The least share of the fastest on the judging half, by product, number type and half."""
    told = load_script("studies/auto_selector").judged()
    means = [[float(cell) for cell in line.split("|")[6:9]] for line in list(told)[2:]]
    assert len(means) == 12
    rule, first, raced = (min(column) for column in zip(*means, strict=True))
    assert rule >= 0.75
    assert first >= 0.95
    assert raced >= 0.985


def test_candidates_serve_their_operator() -> None:
    for op, choices in PORTFOLIO.items():
        assert all(op in choice.made().ops and DeviceKind.CUDA in choice.made().devices for choice in choices.values())


def test_no_row_of_the_training_is_of_the_judging_half() -> None:
    selector = load_script("studies/auto_selector")
    halves: dict[bool, set[str]] = {True: set(), False: set()}
    for row in selector.rows():
        halves[row["half"] == "tuning"].add(row["pattern"])
    assert all(halves.values())
    assert not halves[True] & halves[False]
