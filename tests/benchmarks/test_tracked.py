"""The benchmarks of the suite: what they give for answers of every kind, and that their identity is fixed."""

from __future__ import annotations

import importlib.util
import json
from itertools import product
from math import isnan

import pytest

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Implementation
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.records.schema import PROTOCOL_VERSION
from spmark.suite.asv.series import SweptPhases, SweptPlans, SweptSpmm, live, swept
from spmark.suite.asv.track import Tracked
from spmark.suite.benchmarks import tracked
from spmark.suite.measure import track

KEY = ("spmm", "gespmm", "planetoid/cora", "128", "float32")
ARGS = ("gespmm", "planetoid/cora", 128, "float32")


def answers(**fields) -> dict:
    return {KEY: Tracked(**({"status": "ok"} | fields)).model_dump(mode="json")}


def test_the_version_follows_the_protocol() -> None:
    assert tracked.PROTOCOL == PROTOCOL_VERSION, "another protocol starts another history: count tracked.PROTOCOL up"
    owners = {type(benchmark.owner) for benchmark in (*live(), *swept())}
    assert len(owners) == 12
    assert {owner.version for owner in owners} == {f"protocol-{PROTOCOL_VERSION}"}
    assert all(len(owner.params) == len(owner.param_names) for owner in owners)


FIRST = ("cusparse", "cusparse_best", "cublas", "gespmm", "sparsetir", "dgl", "scipy_cpu", "numba_cpu", "blas_cpu")
"""What histories have from the first day, in their order."""


def kinds() -> dict[str, Implementation]:
    return {name: create(name) for name in IMPLEMENTATIONS}


def test_every_gpu_implementation_is_followed_or_refused_in_words() -> None:
    table = {name for name, kind in kinds().items() if DeviceKind.CUDA in kind.devices}
    followed = set(tracked.LiveSpmm.params[0])
    assert table - followed == set(tracked.REFUSED), (
        "append the implementation to LATER or HALF_LATER of suite/benchmarks/tracked.py, or say in REFUSED why not"
    )
    assert all(len(reason.split()) > 3 for reason in tracked.REFUSED.values())
    assert followed <= set(IMPLEMENTATIONS), "what is followed exists"
    sddmm = {name for name in followed if Op.SDDMM in kinds()[name].ops}
    assert set(tracked.LiveSddmm.params[0]) == sddmm


def test_builds_are_followed_in_a_dtype_that_the_implementation_takes(small_matrix) -> None:
    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))
    width, dtype = tracked.BUILT
    problem = Problem(Op.SPMM, small_matrix, width, DType(dtype))
    later = {name: kinds()[name].unsupported(problem, device) for name in (*tracked.LATER, *tracked.HALF_LATER)}
    assert {name for name, reason in later.items() if reason} == set(tracked.HALF_LATER)
    assert {name for _, names, *_ in (tracked.LiveHalfPlans.params, tracked.LivePlans.params) for name in names} == (
        set(tracked.LiveSpmm.params[0])
    )
    asked = dict(tracked.questions())
    for owner in (tracked.LivePlans, tracked.LivePhases, tracked.LiveHalfPlans, tracked.LiveHalfPhases):
        ops, implementations, matrices, *_ = owner.params
        for op, name, matrix in product(ops, implementations, matrices):
            question = asked.get((op, name, matrix, *map(str, owner.built)))
            assert question["builds"] if question else Op(op) not in kinds()[name].ops


def test_series_that_exist_keep_their_names() -> None:
    assert tracked.IMPLEMENTATIONS == FIRST
    for owner, place in (
        (tracked.LiveSpmm, 0),
        (tracked.LiveSddmm, 0),
        (tracked.LivePlans, 1),
        (tracked.LivePhases, 1),
    ):
        assert owner.params[place][: len(FIRST)] == FIRST, "new ones are appended"
    assert all(owner.params[place] == FIRST for owner, place in ((SweptSpmm, 0), (SweptPlans, 1)))
    keys = list(dict(tracked.questions()))
    runs = [key for key in keys if key[0] in tracked.OPS and key[1] in IMPLEMENTATIONS]
    assert len(runs) == len(set(runs))
    last = max(place for place, key in enumerate(runs) if key[1] in FIRST)
    assert all(key[1] in FIRST for key in runs[: last + 1]), "a new one that breaks the device takes nothing from these"


def test_an_implementation_that_a_commit_does_not_know_is_na() -> None:
    (answer,) = track(
        [
            dict(tracked.questions())["spmm", "stile", "rmat/rmat_13", "128", "float32"]
            | {"implementation": "not_yet_there"}
        ],
        device="cpu",
    )
    assert answer["status"] == "unsupported"
    assert "found 'not_yet_there'" in answer["reason"]
    held = {("spmm", "stile", "rmat/rmat_13", "128", "float32"): answer}
    assert isnan(tracked.LiveSpmm().track_time(held, "stile", "rmat/rmat_13", 128, "float32"))


def test_samples_come_as_samples_and_one_as_a_value() -> None:
    times = SweptSpmm()
    assert times.track_time(answers(samples_s=[2.0, 1.0]), *ARGS) == {"samples": [2.0, 1.0], "number": 1}
    assert times.track_time(answers(samples_s=[2.0]), *ARGS) == 2.0


@pytest.mark.parametrize("held", [{}, answers(status="unsupported"), answers(protocol=0, samples_s=[1.0])])
def test_what_cannot_run_or_is_of_another_protocol_is_na(held) -> None:
    assert isnan(SweptSpmm().track_time(held, *ARGS))
    plans = SweptPlans()
    for name in (
        "track_build",
        "track_build_cpu_ratio",
        "track_search",
        "track_stored",
        "track_device_bytes",
        "track_regret",
    ):
        assert isnan(getattr(plans, name)(held, "spmm", *ARGS[:2])), name


def test_a_failure_raises_with_its_reason() -> None:
    with pytest.raises(RuntimeError, match="wrong_result: off by 3"):
        SweptSpmm().track_time(answers(status="wrong_result", reason="off by 3"), *ARGS)


def test_build_search_and_phases_are_of_the_same_builds() -> None:
    held = answers(phases_s={"select": [0.5, 0.25], "search": [1.0, 2.0], "convert": [4.0, 8.0]})
    plans, phases = SweptPlans(), SweptPhases()
    assert plans.track_build(held, "spmm", *ARGS[:2])["samples"] == [5.5, 10.25]
    assert plans.track_search(held, "spmm", *ARGS[:2])["samples"] == [1.5, 2.25]
    assert phases.track_phase(held, "spmm", *ARGS[:2], "convert")["samples"] == [4.0, 8.0]
    assert isnan(phases.track_phase(held, "spmm", *ARGS[:2], "compile"))


def test_regret_is_the_predicted_candidate_over_the_best() -> None:
    plans = SweptPlans()
    predicted = answers(candidates=[(3.0, 10.0), (1.0, 6.0), (2.0, 4.0), (None, 8.0)])
    assert plans.track_regret(predicted, "spmm", *ARGS[:2]) == pytest.approx(1.5)
    assert isnan(plans.track_regret(answers(candidates=[(None, 4.0)]), "spmm", *ARGS[:2]))


def test_the_default_of_cusparse_is_held_against_its_best() -> None:
    seen = answers(candidates=[(None, 6.0), (None, 4.0)])[KEY]
    held = {("spmm", "cusparse_best", "planetoid/cora", "128", "float32"): seen}
    assert SweptPlans().track_regret(held, "spmm", "cusparse", "planetoid/cora") == pytest.approx(1.5)


def test_every_parameter_of_the_live_set_is_asked_for() -> None:
    questions = dict(tracked.questions())
    for owner in (tracked.LiveSpmm, tracked.LiveSddmm):
        implementations, matrices, widths, dtypes = owner.params
        for matrix in matrices:
            assert (owner.op, implementations[0], matrix, str(widths[0]), dtypes[0]) in questions
            assert (owner.op, implementations[-1], matrix, *map(str, tracked.BUILT)) in questions
    assert all((name, matrix) in questions for name in tracked.CONVERSIONS for matrix in tracked.CONVERTED)
    ops, searches, matrices = tracked.LiveSearches.params
    asked = {
        (op, search, matrix) in questions for op in ops for search in searches for matrix in matrices if op == "spmm"
    }
    assert asked == {True}
    assert all(("sddmm", search, matrix) in questions for search in tracked.SDDMM_SEARCHES for matrix in matrices)
    built = [question for question in questions.values() if question.get("builds")]
    assert {(question["width"], question["dtype"]) for question in built} == {tracked.BUILT, tracked.HALF_BUILT}


def test_a_search_has_ratios_and_a_prediction() -> None:
    key = ("spmm", "stile_a100", "patterns/strided_4096")
    told = Tracked(status="ok", cpu_s=[0.5, 0.75], baseline_cpu_s=[0.25, 0.25], predicted_s=3e-5)
    held = {key: told.model_dump()}
    searches = tracked.LiveSearches()
    assert searches.track_cpu_ratio(held, *key)["samples"] == [2.0, 3.0]
    older = {key: {name: value for name, value in held[key].items() if name != "baseline_cpu_s"}}
    assert isnan(searches.track_cpu_ratio(older, *key)), "commits from before the baseline"
    assert searches.track_predicted(held, *key) == 3e-5
    assert isnan(searches.track_predicted({}, *key))


@pytest.fixture
def benchmarks_where(monkeypatch):
    """Give a function that reads the benchmarks anew, as airspeed velocity's processes do where a plugin spoke."""

    def benchmarks_where(**known):
        monkeypatch.setenv(tracked.LIVE, json.dumps(known))
        found = importlib.util.spec_from_file_location("told", tracked.__file__)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    return benchmarks_where


def test_less_can_be_asked(benchmarks_where, monkeypatch) -> None:
    keys = [["bsr_4x4", matrix] for matrix in tracked.CONVERTED] + [["spmm", "stile_a100", "rmat/rmat_13"]]
    asked = []

    def track(cases):
        asked.extend(cases)
        return [Tracked(status="ok").model_dump() for _ in cases]

    monkeypatch.setattr("spmark.suite.measure.track", track)
    held = benchmarks_where(questions=keys).LiveConversions().setup_cache()
    assert len(held) == len(asked) == len(tracked.CONVERTED)
    assert {case["format_args"]["block_rows"] for case in asked} == {4}


def test_a_cpu_has_its_own_implementations_and_not_what_is_left_out(benchmarks_where) -> None:
    given = ["scipy_cpu", "numba_cpu", "taco_cpu"]
    here = benchmarks_where(device="cpu", implementations=given, left_out=["track_time", "track_phase", "track_build"])
    assert here.LiveSpmm.params[0] == ("numba_cpu", "taco_cpu"), "the baseline's ratio to itself says nothing"
    assert here.LivePlans.params[1] == tuple(given)
    assert here.LiveHalfPlans.params[1] == ()
    methods = {
        name
        for owner, kind in vars(here).items()
        if owner.startswith("Live")
        for name in dir(kind)
        if name.startswith("track_")
    }
    assert methods == {
        "track_ratio", "track_build_cpu_ratio", "track_search", "track_regret", "track_cpu_ratio", "track_stored",
        "track_device_bytes", "track_predicted",
    }  # fmt: skip


def test_a_gpu_has_times_beside_ratios(benchmarks_where) -> None:
    here = benchmarks_where(device="cuda", implementations=["cusparse", "gespmm"])
    assert here.LiveSpmm.params[0] == ("cusparse", "gespmm")
    assert all(hasattr(here.LivePlans, name) for name in ("track_build", "track_search", "track_regret"))
    assert hasattr(here.LiveSpmm, "track_time")


def test_a_commit_without_track_is_na(monkeypatch) -> None:
    monkeypatch.delattr("spmark.suite.measure.track")
    assert tracked.LiveSpmm().setup_cache() == {}
