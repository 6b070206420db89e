"""Every implementation of the table on every tiny problem and every kind of device that is here.

An implementation that is added to the table is covered without an edit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, problems

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError, OperandError, UnsupportedError
from spmark.impls.core.interfaces import PHASES, Plan
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS, create

GUARD = 64
SEED = 3


def kinds_of(name: str) -> list[DeviceKind]:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    try:
        return sorted(getattr(import_module(module), label).devices)
    except (ImportError, AttributeError):
        return [DeviceKind.CPU]  # the test itself fails on it


PAIRS = [
    pytest.param(name, kind, id=f"{name}-{kind}", marks=[pytest.mark.gpu] if kind is DeviceKind.CUDA else [])
    for name in IMPLEMENTATIONS
    for kind in kinds_of(name)
]
HOST_PAIRS = [pair for pair in PAIRS if pair.values[1] is DeviceKind.HOST_SIMT]
ORDERS = ("2", "5", "6")
CUDA_PAIRS = [pair for pair in PAIRS if pair.values[1] is DeviceKind.CUDA]


def one_problem(name: str, op: Op, place: Place) -> Problem:
    """Give a problem for what one is enough for: in float32, or in the dtype that the implementation takes."""
    found = [problems()[f"{op}-empty_rows-J20-{dtype}"] for dtype in DType]
    return next((one for one in found if create(name).unsupported(one, place.spec) is None), found[0])


class Place:
    """Arrays of one kind of device: NumPy's, or CuPy's."""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec
        self.xp: Any = import_module("cupy") if spec.kind is DeviceKind.CUDA else np

    def upload(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        return array if self.xp is np else self.xp.asnumpy(array)

    def guarded(self, problem: Problem) -> tuple[Any, Any]:
        """Give a buffer of NaN and the part of it that is the result: what is written beside the result shows."""
        size = int(np.prod(problem.out_shape))
        buffer = self.xp.full(size + 2 * GUARD, np.nan, problem.dtype.numpy)
        return buffer, buffer[GUARD : GUARD + size].reshape(problem.out_shape)

    def misaligned(self, array: Any) -> Any:
        """Give the same elements one byte past an aligned address."""
        buffer = self.xp.zeros(array.nbytes + 64, np.uint8)
        if self.xp is np:
            view = np.ndarray(array.shape, array.dtype, buffer.data, 1)
        else:
            view = self.xp.ndarray(array.shape, array.dtype, buffer.data + 1)
        return view


@pytest.fixture
def place(kind: DeviceKind) -> Place:
    try:
        return Place(find(kind.value))
    except DeviceError as error:
        pytest.skip(f"{kind}: {error}")


def build(name: str, problem: Problem, place: Place) -> Plan:
    implementation = create(name)
    if problem.op not in implementation.ops:
        pytest.skip(f"{name} has no {problem.op}")
    reason = implementation.unsupported(problem, place.spec)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    try:
        return implementation.build(problem, place.spec)
    except UnsupportedError as error:
        pytest.skip(f"{name}: {error}")


def unwritten(out: np.ndarray) -> str:
    """Say what a result that holds NaN means: the buffer was filled with it before the run."""
    where = np.argwhere(np.isnan(out))
    return f"left {len(where)} elements of `out` that it did not write, the first at {tuple(map(int, where[0]))}"


@pytest.mark.parametrize("problem", problems().values(), ids=problems())
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_result(name: str, problem: Problem, place: Place) -> None:
    plan = build(name, problem, place)
    originals = dense_operands(problem, SEED)
    operands = [place.upload(original.copy()) for original in originals]
    results = []
    for _ in range(2):
        buffer, out = place.guarded(problem)
        plan.run(operands, out)
        results.append(place.download(out).copy())
        around = place.download(buffer)
        assert np.isnan(around[:GUARD]).all(), "wrote before the result"
        assert np.isnan(around[around.size - GUARD :]).all(), "wrote past the result"
    assert not np.isnan(results[0]).any(), unwritten(results[0])
    error = reference(problem, originals).max_error(results[0])
    assert error <= tolerance(problem, plan.half_sums)
    for operand, original in zip(operands, originals, strict=True):
        np.testing.assert_array_equal(place.download(operand), original, "an operand was changed")
    if plan.deterministic:
        np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8), "two runs differ")


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("case", ["spmm-lengths_of_warps", "sddmm-under_32_rows"])
@pytest.mark.parametrize(("name", "kind"), HOST_PAIRS)
def test_every_order_gives_the_result(
    name: str, case: str, dtype: DType, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, warps and lanes run down, and as two seeds draw them."""
    problem = problems()[f"{case}-J32-{dtype}"]
    plan = build(name, problem, place)
    operands, results = [place.upload(operand) for operand in dense_operands(problem, SEED)], []
    for order in ORDERS:
        monkeypatch.setenv("SPMARK_HOST_ORDER", order)
        results.append(place.guarded(problem)[1])
        plan.run(operands, results[-1])
        assert reference(problem, operands).max_error(results[-1]) <= tolerance(problem, plan.half_sums)
        if plan.deterministic:
            np.testing.assert_array_equal(results[0].view(np.uint8), results[-1].view(np.uint8), "two orders differ")


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_accounts(name: str, op: Op, place: Place) -> None:
    problem = one_problem(name, op, place)
    plan = build(name, problem, place)
    assert set(plan.phases_s) <= set(PHASES)
    assert all(seconds >= 0 for seconds in plan.phases_s.values())
    assert plan.stored >= problem.matrix.nnz
    assert plan.device_bytes >= problem.matrix.nnz


def transposed(place: Place, array: Any) -> Any:
    return place.xp.ascontiguousarray(array.T) if array.ndim > 1 else array[:-1]


def widened(place: Place, array: Any) -> Any:
    return array.astype(np.float64)


def every_second(place: Place, array: Any) -> Any:
    return place.xp.repeat(array, 2, axis=-1)[..., ::2]


def misaligned(place: Place, array: Any) -> Any:
    return place.misaligned(array)


def elsewhere(place: Place, array: Any) -> Any:
    if place.xp is not np:
        return place.download(array)
    facts = {"shape": array.shape, "typestr": array.dtype.str, "data": (256, False), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=facts)


def plain_list(place: Place, array: Any) -> Any:
    return place.download(array).tolist()


FAULTS = (transposed, widened, every_second, misaligned, elsewhere, plain_list)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_wrong_array_is_refused(name: str, op: Op, fault: Callable[[Place, Any], Any], place: Place) -> None:
    problem = one_problem(name, op, place)
    plan = build(name, problem, place)
    good = [place.upload(operand) for operand in dense_operands(problem, SEED)]
    good.append(place.xp.full(problem.out_shape, 7, problem.dtype.numpy))
    for position in range(len(good)):
        arrays = list(good)
        arrays[position] = fault(place, arrays[position])
        with pytest.raises(OperandError, match="expected"):
            plan.run(arrays[:-1], arrays[-1])
        assert (place.download(good[-1]) == 7).all(), "a refused run wrote"


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_wrong_number_and_overlap_are_refused(name: str, op: Op, place: Place) -> None:
    problem = one_problem(name, op, place)
    plan = build(name, problem, place)
    operands = [place.upload(operand) for operand in dense_operands(problem, SEED)]
    _, out = place.guarded(problem)
    with pytest.raises(OperandError, match="operands"):
        plan.run([*operands, operands[0]], out)
    size = int(np.prod(problem.out_shape))
    held = place.xp.zeros(size + operands[0].size, problem.dtype.numpy)
    inside = held[: operands[0].size].reshape(operands[0].shape)
    overlapping = held[operands[0].size - 4 :][:size].reshape(problem.out_shape)
    with pytest.raises(OperandError, match="memory of its own"):
        plan.run([inside, *operands[1:]], overlapping)


@pytest.mark.gpu
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), CUDA_PAIRS)
def test_run_can_be_captured(name: str, op: Op, place: Place) -> None:
    """An allocation, a synchronisation or a launch on another stream breaks the capture of a CUDA graph."""
    problem = one_problem(name, op, place)
    plan = build(name, problem, place)
    originals = dense_operands(problem, SEED)
    operands = [place.upload(operand) for operand in originals]
    _, out = place.guarded(problem)
    with place.xp.cuda.Stream(non_blocking=True) as stream:
        plan.run(operands, out)
        stream.synchronize()
        stream.begin_capture()
        plan.run(operands, out)
        graph = stream.end_capture()
        out.fill(np.nan)
        graph.launch(stream)
        stream.synchronize()
    error = reference(problem, originals).max_error(place.download(out))
    assert error <= tolerance(problem, plan.half_sums)


def test_a_result_that_is_left_unwritten_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that writes all rows but the first: the failure names what it left, not an error of infinity."""
    place, problem = Place(find("cpu")), problems()["spmm-empty_rows-J20-float32"]
    plan = create("scipy_cpu").build(problem, place.spec)
    whole_run = plan.run

    def lazy(operands: Any, out: Any) -> None:
        whole_run(operands, complete := np.empty_like(out))
        out[1:] = complete[1:]

    monkeypatch.setattr(plan, "run", lazy)
    monkeypatch.setattr(sys.modules[__name__], "build", lambda *_: plan)
    with pytest.raises(AssertionError, match=r"left 20 elements of `out` that it did not write, the first at \(0, 0\)"):
        test_result("scipy_cpu", problem, place)
