"""Every implementation of RGMS on every tiny problem and every kind of device that is here."""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from relational import SEED, operand_arrays, relational_problems
from together import compiled_together, given_on_host

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError, OperandError, SweepError
from spmark.impls.core.interfaces import PHASES, Plan
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import find
from spmark.impls.table import RELATIONAL, create
from spmark.suite.conformance import GUARD, HOST_ORDERS, WRONG_ARRAYS, Place

PROBLEMS = relational_problems((16, 32), (5, 3))
WIDER = {name: one for name, one in relational_problems((72, 130), (1, 1)).items() if name.startswith(("hub", "empty"))}
PAIRS = [
    pytest.param(name, kind, id=f"{name}-{kind}", marks=[pytest.mark.gpu] if kind is DeviceKind.CUDA else [])
    for name in RELATIONAL
    for kind in sorted(create(name).devices)
]
ONE = PROBLEMS["kernel_map-5-3-float16"]
REPEATED = {f"many_relations-{pair}" for pair in ("5-3-float32", "5-3-bfloat16", "16-32-float16")}
"""What `rgms_naive`, with a launch for each of 300 relations, computes at the other widths or in another type."""
SOME_ALONE = {"rgms_rows", "pyg_rgcn", "dgl_rgcn", "spconv", "spconv_triton"}
"""Implementations that take some problems alone, or need a package."""


@pytest.fixture
def place(kind: DeviceKind) -> Place:
    try:
        return Place(find(kind.value))
    except DeviceError as error:
        pytest.skip(f"{kind}: {error}")


@pytest.fixture(scope="module", autouse=True)
def few_executables(request: pytest.FixtureRequest) -> Generator[None]:
    """Compile the kernels of a source once for all tests of this file that run."""
    with compiled_together(partial(build_of, one["name"], one.get("case")) for one in given_on_host(request)):
        yield


def build_of(name: str, case: str | None) -> Plan:
    """Build the plan of a test with these parameters."""
    return create(name).build({**PROBLEMS, **WIDER}[case] if case else ONE, find(DeviceKind.HOST_SIMT.value))


def build(name: str, problem: RelationalProblem, place: Place, **config: Any) -> Plan:
    how = create(name, config)
    reason = how.unsupported(problem, place.spec)
    if reason is not None:
        assert name in SOME_ALONE, reason
        pytest.skip(reason)
    return how.build(problem, place.spec)


def check(problem: RelationalProblem, operands: Any, out: np.ndarray, half_sums: bool = False) -> None:
    assert reference(problem, operands).max_error(out) <= tolerance(problem, half_sums)


@pytest.mark.one_in(5)  # no divisor of the six pairs of widths and types that follow each other
@pytest.mark.parametrize(
    ("name", "kind", "case"),
    [
        pytest.param(*pair.values, case, id=f"{pair.id}-{case}", marks=pair.marks)
        for pair in PAIRS
        for case in {**PROBLEMS, **WIDER}
        if case not in REPEATED or pair.values != ("rgms_naive", DeviceKind.HOST_SIMT)
    ],
)
def test_result(name: str, case: str, place: Place) -> None:
    """Complete, right, nothing beside it, operands as before, the same bits again, and of new operands."""
    problem = {**PROBLEMS, **WIDER}[case]
    plan = build(name, problem, place)
    originals = operand_arrays(problem)
    others = operand_arrays(problem, SEED + 1)
    results = []
    operands = [place.upload(array) for array in originals]
    for given in (operands, operands, [place.upload(array) for array in others]):
        size = problem.out_shape[0] * problem.out_shape[1]
        buffer = place.xp.full(size + 2 * GUARD, problem.dtype.nan, problem.dtype.numpy)
        out = buffer[GUARD : GUARD + size].reshape(problem.out_shape)
        plan.run(given, out)
        around = problem.dtype.numbers(place.download(buffer))
        assert np.isnan(around[:GUARD]).all()
        assert np.isnan(around[-GUARD:]).all()
        results.append(place.download(out).copy())
    check(problem, originals, results[0], plan.half_sums)
    check(problem, others, results[2], plan.half_sums)
    for operand, original in zip(operands, originals, strict=True):
        np.testing.assert_array_equal(place.download(operand), original)
    if plan.deterministic:
        np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(("name", "kind"), [pair for pair in PAIRS if pair.values[1] is DeviceKind.HOST_SIMT])
def test_every_order_gives_the_result(name: str, place: Place) -> None:
    plan, operands = build(name, ONE, place), operand_arrays(ONE)
    with patch.dict(os.environ):
        for order in HOST_ORDERS:
            os.environ["SPMARK_HOST_ORDER"] = order
            out = np.full(ONE.out_shape, np.nan, np.float16)
            plan.run(operands, out)
            check(ONE, operands, out, plan.half_sums)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_accounts(name: str, place: Place) -> None:
    plan = build(name, ONE, place)
    assert set(plan.phases_s) <= set(PHASES)
    assert plan.stored >= ONE.matrix.nnz
    assert plan.device_bytes >= ONE.matrix.nnz * 6


@pytest.mark.parametrize("fault", WRONG_ARRAYS)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_wrong_array_is_refused(name: str, fault: str, place: Place) -> None:
    plan = build(name, ONE, place)
    good = [*map(place.upload, operand_arrays(ONE)), place.xp.full(ONE.out_shape, 7, np.float16)]
    for position, array in enumerate(good):
        arrays = [*good[:position], WRONG_ARRAYS[fault](place, array), *good[position + 1 :]]
        with pytest.raises(OperandError, match="expected"):
            plan.run(arrays[:-1], arrays[-1])
        assert (place.download(good[-1]) == 7).all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "kind"),
    [pair for pair in PAIRS if pair.values[1] is DeviceKind.CUDA and pair.values[0] != "pyg_rgcn"],
)
def test_run_can_be_captured(name: str, place: Place) -> None:
    """PyTorch Geometric's layers ask the GPU how many edges each relation has, which no capture allows."""
    plan, operands = build(name, ONE, place), [place.upload(array) for array in operand_arrays(ONE)]
    out = place.xp.full(ONE.out_shape, np.nan, np.float16)
    with place.xp.cuda.Stream(non_blocking=True) as stream:
        plan.run(operands, out)
        stream.synchronize()
        stream.begin_capture()
        plan.run(operands, out)
        graph = stream.end_capture()
        out.fill(np.nan)
        graph.launch(stream)
        stream.synchronize()
    check(ONE, operand_arrays(ONE), place.download(out), plan.half_sums)


@pytest.mark.parametrize("kind", [DeviceKind.HOST_SIMT, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", ["hub-16-32", "empty_relations-5-3", "no_edges-16-32"])
@pytest.mark.parametrize("dtype", list(DType))
def test_grouped_products(dtype: DType, case: str, place: Place) -> None:
    """In 16 bits they are rounded before they are added up, and the plan says so."""
    problem = PROBLEMS[f"{case}-{dtype}"]
    plan, operands = build("gather_gemm_scatter", problem, place, products="grouped"), operand_arrays(problem)
    assert plan.half_sums == dtype.narrow
    out = place.xp.full(problem.out_shape, dtype.nan, dtype.numpy)
    plan.run([place.upload(array) for array in operands], out)
    check(problem, operands, place.download(out), plan.half_sums)


def test_rgms_rows_says_what_it_refuses() -> None:
    how, host = create("rgms_rows"), find("host-simt")
    assert how.unsupported(PROBLEMS["kernel_map-16-32-float32"], host) == "expected 16-bit floats, found float32"
    assert how.unsupported(PROBLEMS["many_relations-16-32-float16"], host) == (
        "expected at most 32 relations, found 300"
    )
    large = RelationalProblem(PROBLEMS["kernel_map-16-32-float16"].matrix, 64, 128, DType.FLOAT16)
    assert how.unsupported(large, host) is None
    small = host.model_copy(update={"shared_bytes_per_block": 60 << 10})
    assert str(how.unsupported(large, small)).startswith("expected shared memory of ")
    assert str(how.unsupported(PROBLEMS["hub-16-32-float16"], host)).startswith("expected an edge of each relation")


@pytest.mark.parametrize("dtype", list(DType))
def test_rgms_hyb_adds_up_in_order_where_it_is_asked_to(dtype: DType) -> None:
    problem = PROBLEMS[f"hub-16-32-{dtype}"]
    plan = build("rgms_hyb", problem, Place(find("host-simt")), ordered=True)
    assert plan.deterministic
    assert not build("rgms_hyb", problem, Place(find("host-simt"))).deterministic
    out = np.full(problem.out_shape, dtype.nan, dtype.numpy)
    plan.run(operand_arrays(problem), out)
    check(problem, operand_arrays(problem), out)


@pytest.mark.parametrize("name", ["rgms_hyb", "rgms_naive"])
def test_widths_beyond_the_grid_are_refused(name: str) -> None:
    wide = RelationalProblem(PROBLEMS["hub-16-32-float32"].matrix, 1, 1 << 22)
    told = create(name).unsupported(wide, find("host-simt"))
    assert told == "expected width_out of at most 2,097,120, found 4,194,304"


def test_names_and_tunables_are_checked() -> None:
    with pytest.raises(SweepError, match=r"expected an implementation out of .*, rgms_hyb, .*, found 'rgms'"):
        create("rgms")
    with pytest.raises(SweepError, match="products"):
        create("gather_gemm_scatter", {"products": "some"})
