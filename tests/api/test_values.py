"""New values for an old pattern: in place where a plan says where it keeps them, else by a build without a search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import spmark
from spmark.impls.core.errors import BuildError, OperandError, ProblemError
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import DType
from spmark.impls.operator import values as module
from spmark.impls.operator.values import find_slots


def fresh(a: Any, seed: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(a.nnz).astype(np.float16).astype(dtype)


def with_values(a: Any, values: np.ndarray) -> Any:
    return sparse.csr_array((values.astype(np.float64), a.indices, a.indptr), shape=a.shape)


@pytest.mark.parametrize(
    ("name", "device", "dtype"),
    [
        ("scipy_cpu", "cpu", "float32"),
        ("scipy_cpu", "cpu", "float16"),
        ("numba_cpu", "cpu", "float32"),
        ("auto", "cpu", "float64"),
        ("scipy_cpu", "cpu", "bfloat16"),
        ("blas_cpu", "cpu", "float32"),
        ("direct", "host-simt", "float32"),
        ("rowsplit", "host-simt", "float16"),
        ("gespmm", "host-simt", "float32"),
        ("nnzbalanced", "host-simt", "float32"),
        ("rode", "host-simt", "float32"),
        ("sparsetir_nohyb", "host-simt", "float16"),
        ("sparsetir_dbsr", "host-simt", "float16"),
        ("sparsetir_srbcrs", "host-simt", "float16"),
        ("flashsparse", "host-simt", "float16"),
        ("liteform", "host-simt", "float32"),
        ("stile", "host-simt", "float16"),
        ("direct", "host-simt", "bfloat16"),
        ("liteform", "host-simt", "bfloat16"),
        ("sparsetir", "host-simt", "float16"),
        ("auto", "host-simt", "float64"),
    ],
)
def test_the_next_product_has_the_new_values(
    name: str, device: str, dtype: str, a: Any, b: np.ndarray, close: Any, request: pytest.FixtureRequest
) -> None:
    rounded = sparse.csr_array(a.toarray().astype(np.float16).astype(np.float32))
    op = spmark.compile(rounded, width=6, dtype=dtype, use=name, device=device)
    if dtype == "bfloat16":
        torch = request.getfixturevalue("torch")
        dense, made = torch.tensor(b).bfloat16(), lambda values: torch.tensor(values).bfloat16()
    else:
        dense, made = b.astype(dtype), lambda values: values.astype(dtype)
    op(dense)
    for seed in (1, 2):
        values = fresh(rounded, seed)
        op.update_values(made(values))
        close(op(dense), with_values(rounded, values) @ b.astype(np.float64), dtype)


@pytest.mark.parametrize(
    ("name", "device"), [("scipy_cpu", "cpu"), ("sparsetir_dbsr", "host-simt"), ("liteform", "host-simt")]
)
def test_values_may_come_in_another_order(name: str, device: str, a: Any, b: np.ndarray, close: Any) -> None:
    """Plans in CSR order, plans with slots, and a width that is planned behind an update."""
    rounded = sparse.csr_array(a.toarray().astype(np.float16).astype(np.float32))
    op = spmark.compile(rounded, width=6, dtype="float16", use=name, device=device, other_width="plan")
    op.order = np.random.default_rng(3).permutation(rounded.nnz)
    for seed in (1, 2):
        values = fresh(rounded, seed)
        moved = np.empty_like(values)
        moved[op.order] = values
        for width in (6, 3):
            found = op.compute_with(moved.astype("float16"), b[:, :width].astype("float16"))
            close(found, with_values(rounded, values) @ b[:, :width].astype(np.float64), "float16")


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("name", "device"), [("scipy_cpu", "cpu"), ("numba_cpu", "cpu"), ("rowsplit", "host-simt")])
def test_factors_of_sddmm(name: str, device: str, scaled: bool, a: Any, xy: Any, close: Any, sddmm_of: Any) -> None:
    op = spmark.compile(a, "sddmm", width=6, use=name, device=device, scaled=scaled)
    values = fresh(a, 1)
    op.update_values(values)
    close(op(*xy), sddmm_of(with_values(a, values), *xy, scaled))


@pytest.mark.parametrize("name", ["scipy_cpu", "blas_cpu"])
def test_other_widths_get_the_new_values_whenever_they_are_planned(
    name: str, a: Any, b: np.ndarray, close: Any
) -> None:
    op = spmark.compile(a, width=[6, 2], use=name, device="cpu")
    for seed, width in ((1, 3), (2, 4), (3, 3)):
        values = fresh(a, seed)
        op.update_values(values)
        for one in (6, 2, width):
            dense = np.ascontiguousarray(b[:, :one])
            close(op(dense), with_values(a, values) @ dense.astype(np.float64))
    assert op.widths == (6, 2, 3, 4)


def test_a_plan_that_was_chosen_before_an_update_is_not_taken(a: Any, b: np.ndarray, close: Any) -> None:
    op = spmark.compile(a, width=(), use="scipy_cpu", device="cpu")
    op.choose(b.shape[1])
    values = fresh(a, 1)
    op.update_values(values)
    op.plan(b.shape[1])
    close(op(b), with_values(a, values) @ b)


def test_the_pattern_cannot_be_written(a: Any) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    for array in (op.pattern.indptr, op.pattern.indices, op.pattern.values):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0


def test_the_caller_keeps_the_array_of_values(a: Any, b: np.ndarray) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    values = fresh(a, 1)
    strided = np.repeat(values, 2)[::2]
    op.update_values(strided)
    expected = op(b)
    strided[:] = 0
    np.testing.assert_array_equal(op(b), expected)
    assert (a.data != values).any()
    np.testing.assert_array_equal(op(b), spmark.spmm(with_values(a, values).astype(np.float32), b))


def test_a_plan_that_says_nothing_is_built_again_and_one_that_does_is_not(
    a: Any, b: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = module.build
    monkeypatch.setattr(module, "build", lambda *args: built.append(args[2].name) or build(*args))
    silent = spmark.compile(a, width=6, use="blas_cpu", device="cpu")
    telling = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    for seed in (1, 2, 3):
        for op in (silent, telling):
            op.update_values(fresh(a, seed))
    assert built.count("blas_cpu") == 3
    assert "scipy_cpu" not in built


class Scattered(Built):
    """A plan that keeps values in a drawn order with padding between them."""

    def __init__(self, values: np.ndarray, dtype: Any, seed: int, kept: bool = True, **facts: Any) -> None:
        super().__init__(**facts)
        rng = np.random.default_rng(seed)
        size = values.size + int(rng.integers(0, 5))
        self.places = rng.permutation(size)[: values.size]
        self.values_in_order = False
        if kept:
            self.values = np.zeros(size, dtype)
            self.values[self.places] = values


@given(st.integers(0, 6000), st.sampled_from(list(DType)), st.integers(0, 99))
def test_every_slot_is_found(nnz: int, dtype: DType, seed: int) -> None:
    random = np.random.default_rng(seed).random(nnz, np.float32)
    values, later = dtype.stored(np.ones(nnz, np.float32)), dtype.stored(random)
    plan, zero = Scattered(values, dtype.numpy, seed), np.zeros(1, dtype.numpy)

    def counted(counting: np.ndarray) -> Scattered:
        return Scattered(dtype.stored(counting), dtype.numpy, seed)

    slots = find_slots(plan, np.concatenate([values, zero]), dtype, counted, np)
    assert slots is not None
    slots.write(np.concatenate([later, zero]), np)
    np.testing.assert_array_equal(plan.values[plan.places], later)
    rest = np.ones(plan.values.size, bool)
    rest[plan.places] = False
    assert not plan.values[rest].any()


def test_a_plan_whose_array_does_not_follow_the_pattern_has_no_slots() -> None:
    values = np.append(np.arange(1, 9, dtype=np.float32), np.float32(0))

    def found(plan: Built, again: Built) -> Any:
        return find_slots(plan, values, DType.FLOAT32, lambda counting: again, np)

    plan = Scattered(values[:-1], "float32", 1)
    assert found(Scattered(values[:-1], "float32", 1, kept=False), plan) is None
    doubled = Scattered(2 * values[:-1], "float32", 1)
    assert found(doubled, Scattered(values[:-1], "float32", 1)) is None, "its values are not A's"
    assert found(plan, Scattered(np.full(8, 77.0), "float32", 1)) is None, "positions beyond the matrix"
    assert found(plan, Scattered(values[:-1], "float32", 1, kept=False)) is None
    alike = np.array([1, 1, 1, 0], np.float32)
    same = Scattered(alike[:-1], "float32", 1)
    slots = find_slots(same, alike, DType.FLOAT32, lambda _: Scattered(np.ones(3), "float32", 1), np)
    assert slots is None, "one position for all"

    def refuses(counting: np.ndarray) -> Built:
        raise BuildError("too large a sum")

    assert find_slots(plan, values, DType.FLOAT32, refuses, np) is None


def test_a_build_of_another_config_tells_nothing_of_a_plan_with_equal_values() -> None:
    """A search that measures may choose the next time another order of rows, whose arrays have the same shape."""
    ones = np.ones(4, np.float32)
    plan = Scattered(ones, "float32", 1, config={"rows": "near"})

    def found(**config: str) -> Any:
        latest = np.append(ones, np.float32(0))
        return find_slots(plan, latest, DType.FLOAT32, lambda some: Scattered(some, "float32", 1, config=config), np)

    assert found(rows="as they stand") is None
    assert found(rows="near") is not None


@pytest.mark.parametrize(
    ("held", "known"), [([1, 2, 3, 0, 0], True), ([1, 2, 3], True), ([1, 2], False), ([1, 3, 2], False)]
)
def test_a_plan_in_csr_order_is_not_built_again(held: list[int], known: bool) -> None:
    plan = Built(values=np.array(held, np.float32))
    slots = find_slots(plan, np.array([1, 2, 3, 0], np.float32), DType.FLOAT32, lambda _: pytest.fail("a build"), np)
    assert (slots is not None) == known
    if slots is not None:
        slots.write(np.array([4, 5, 6, 0], np.float32), np)
        np.testing.assert_array_equal(plan.values, [4, 5, 6, *held[3:]])


def test_values_are_checked_after_a_good_update(a: Any, b: np.ndarray, torch: Any) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    for good in (a.data, torch.tensor(a.data)):
        for _ in range(2):
            op.update_values(good)
        for wrong in (good[1:], good.reshape(1, -1)):
            with pytest.raises(OperandError, match=r"update_values: expected shape"):
                op.update_values(wrong)
    for wrong in (a.data.astype(np.float64), torch.tensor(a.data).double()):
        with pytest.raises(OperandError, match=r"update_values: expected dtype float32, found float64"):
            op.update_values(wrong)
    with pytest.raises(ProblemError, match="update_values: expected a tensor without a gradient"):
        op.update_values(torch.tensor(a.data).requires_grad_())
    gaps = np.repeat(2 * a.data, 2)[::2]
    op.update_values(gaps)
    np.testing.assert_allclose(op(b), 2 * (a @ b), rtol=1e-5, atol=1e-5)
