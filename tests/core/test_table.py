from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import SweepError, UnsupportedError
from spmark.impls.runtime.device import find
from spmark.impls.table import (
    IMPLEMENTATIONS,
    SWITCHES,
    cost_model,
    cost_models,
    create,
    faults,
    module_of,
    platform_of,
    reach_of,
)
from spmark.suite.conformance import check_contract


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_every_entry_is_an_implementation(name: str) -> None:
    made = create(name)
    assert made.name == name
    assert not faults(type(made))
    check_contract(made)
    assert made == create(name)
    pinned: dict[str, Any] = {field.name: getattr(made, field.name) for field in fields(made)}
    assert create(name, pinned) == made


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_what_is_read_of_a_class_is_what_the_class_says(name: str) -> None:
    """Lists believe what is read, and import no implementation."""
    kind, reach = type(create(name)), reach_of(name)
    assert (reach.ops, reach.devices) == (kind.ops, kind.devices)
    assert (reach.needs, reach.extra) == (getattr(kind, "needs", ()), getattr(kind, "extra", ""))
    assert bool(reach.needs) == bool(reach.extra)
    assert reach.about == (kind.__doc__ or "").partition("\n")[0]


def test_how_a_build_is_measured_is_no_tunable() -> None:
    assert create("lo_spmm", {"mode": "near", "anew": True, "again": True}) == create("lo_spmm", {"mode": "near"})
    assert create("gespmm", {"anew": True, "again": False}) == create("gespmm")
    assert not {field.name for name in IMPLEMENTATIONS for field in fields(type(create(name)))} & set(SWITCHES)
    with pytest.raises(
        SweepError, match="implementation gespmm: expected kept plans, which the key again loads, found none"
    ):
        create("gespmm", {"again": True})
    with pytest.raises(SweepError, match="implementation lo_spmm: expected anew to be true or false, found 'no'"):
        create("lo_spmm", {"anew": "no"})


@pytest.mark.parametrize("ask", [create, module_of, platform_of])
def test_unknown_name_lists_the_known_and_the_nearest(ask: Callable[[str], Any]) -> None:
    with pytest.raises(SweepError, match=r"out of cusparse, .*, found 'cusprase' \(did you mean cusparse\?\)"):
        ask("cusprase")
    with pytest.raises(SweepError, match=r"found 'zzz'; a file is named by its path"):
        ask("zzz")


def test_a_retired_tunable_may_say_what_is_done_today() -> None:
    assert create("liteform", {"dense": "never", "alone": 0, "partitions": 2}) == create("liteform", {"partitions": 2})
    with pytest.raises(
        UnsupportedError, match=r"liteform: expected no dense, .* found 'always': leave it out, or say 'never'"
    ):
        create("liteform", {"dense": "always"})


def test_unknown_tunable_lists_the_known() -> None:
    with pytest.raises(SweepError, match="scipy_cpu: expected tunables out of chunk_bytes, found tile"):
        create("scipy_cpu", {"tile": 3})


@pytest.mark.parametrize(("name", "config"), [("scipy_cpu", {"chunk_bytes": 0}), ("numba_cpu", {"threads": 100_000})])
def test_illegal_value_names_the_tunable(name: str, config: dict[str, int]) -> None:
    with pytest.raises(SweepError, match=rf"implementation {name}: expected {next(iter(config))} .*found"):
        create(name, config)


@pytest.mark.parametrize(
    ("name", "tunable", "value", "wanted"),
    [
        ("stile", "withdraw", "false", "true or false"),
        ("stile", "withdraw", 1, "true or false"),
        ("liteform", "thirds", "false", "true or false or null"),
        ("numba_cpu", "threads", 1.5, "an integer, written in digits"),
        ("numba_cpu", "threads", True, "an integer, written in digits"),
        ("scipy_cpu", "chunk_bytes", math.nan, "an integer, written in digits"),
        ("scipy_cpu", "chunk_bytes", None, "an integer, written in digits"),
        ("blas_cpu", "max_dense_bytes", "1e9", "an integer, written in digits"),
        ("auto", "budget_s", "1e9", "a number, written in digits"),
        ("auto", "budget_s", True, "a number, written in digits"),
        ("lo_spmm", "model", 200, "a text"),
    ],
)
def test_a_value_of_another_type_than_its_field_is_refused(name: str, tunable: str, value: Any, wanted: str) -> None:
    with pytest.raises(
        SweepError,
        match=rf"^implementation {name}: expected values like .*{tunable}.*, found .* \({tunable} must be {wanted}\)$",
    ):
        create(name, {tunable: value})


@pytest.mark.parametrize(
    ("name", "tunable", "value"),
    [
        ("auto", "budget_s", math.inf),
        ("auto", "budget_s", 3),
        ("stile", "mode", "code"),
        ("liteform", "thirds", None),
        ("liteform", "thirds", False),
        ("scipy_cpu", "chunk_bytes", np.int64(4096)),
    ],
)
def test_a_value_of_the_type_of_its_field_is_taken_as_it_is(name: str, tunable: str, value: Any) -> None:
    assert getattr(create(name, {tunable: value}), tunable) is value


@pytest.mark.parametrize(("name", "model"), [(name, model) for name in IMPLEMENTATIONS for model in cost_models(name)])
def test_every_cost_model_is_found_by_its_name(name: str, model: str) -> None:
    made = cost_model(create(name), model, find("host-simt"))
    assert made.unit in (None, "s")
    assert callable(made.score)


def test_a_cost_model_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(SweepError, match="lo_spmm: expected a cost model out of estimate, rank, found 'cost'"):
        cost_model(create("lo_spmm"), "cost", find("host-simt"))
    with pytest.raises(SweepError, match="scipy_cpu: expected a cost model out of none"):
        cost_model(create("scipy_cpu"), "cost", find("host-simt"))
