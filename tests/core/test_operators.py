from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, matrices, problems, random_csr

from spmark.impls.core import operators as module
from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import (
    SAMPLED_ROWS,
    RandomOperand,
    random_operands,
    random_values,
    reference,
    sampled_rows,
)
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance


def dense_of(problem: Problem) -> np.ndarray:
    matrix = problem.matrix
    dense = np.zeros(matrix.shape)
    dense[matrix.rows_of_entries(), matrix.indices] = problem.dtype.numbers(problem.values)
    return dense


# random values


def test_random_values_are_a_sign_times_a_half_to_one() -> None:
    values = random_values(np.arange(1 << 18, dtype=np.uint64), 1, 1)
    assert values.dtype == np.float32
    magnitude = np.abs(values).astype(np.float64)
    assert magnitude.min() >= 0.5
    assert magnitude.max() < 1
    steps = (magnitude - 0.5) * 2**23
    np.testing.assert_array_equal(steps, np.round(steps))
    # Five standard errors of a mean and of a share.
    assert abs(magnitude.mean() - 0.75) < 5 * 0.1443 / 512
    assert abs((values > 0).mean() - 0.5) < 5 * 0.5 / 512
    shares = np.histogram(magnitude, 16, (0.5, 1))[0] / values.size
    assert np.abs(shares - 1 / 16).max() < 5 * 0.2421 / 512


def test_random_values_do_not_correlate() -> None:
    index = np.arange(1 << 18, dtype=np.uint64)
    values = random_values(index, 1, 1).astype(np.float64)
    variance = (values**2).mean()
    others = [random_values(index, 1, 2), random_values(index, 2, 1), np.roll(values, 1), np.roll(values, 128)]
    for other in others:
        assert abs((values * other).mean()) / variance < 5 / 512


def test_random_values_have_not_changed() -> None:
    """Records of two versions are compared by seed: these bits are part of the protocol."""
    bits = random_values(np.array([0, 1, 2**40], np.uint64), 7, 1).view(np.uint32)
    assert bits.tolist() == [1062853038, 3208727520, 1057988172]


@pytest.mark.parametrize("dtype", DType)
def test_operand_is_the_same_whole_and_in_parts(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    operand = RandomOperand((37, 11), dtype, 5, 2)
    whole = np.empty(operand.shape, dtype.numpy)
    operand.fill(whole)
    chunked = np.empty_like(whole)
    monkeypatch.setattr(module, "_CHUNK", 16)
    operand.fill(chunked)
    np.testing.assert_array_equal(whole, chunked)
    rows = np.array([36, 0, 5])
    np.testing.assert_array_equal(operand[rows, 3:9], whole[rows, 3:9])
    np.testing.assert_array_equal(operand[rows, :], whole[rows])
    assert operand[rows, :].dtype == dtype.numpy
    assert operand.equals(whole)
    for at in (0, 15, 16, whole.size - 1):
        changed = whole.copy()
        changed.reshape(-1)[at] += 1
        assert not operand.equals(changed)


# reference


@pytest.mark.parametrize("name", problems())
def test_reference_is_the_dense_product(name: str) -> None:
    problem = problems()[name]
    operands = dense_operands(problem)
    found = reference(problem, random_operands(problem, 0))
    a, wide = dense_of(problem), [problem.dtype.numbers(operand).astype(np.float64) for operand in operands]
    at = problem.matrix.rows_of_entries(), problem.matrix.indices
    if problem.op is Op.SPMM:
        result, magnitude = a @ wide[0], np.abs(a) @ np.abs(wide[0])
    else:
        result, magnitude = (wide[0] @ wide[1].T)[at], (np.abs(wide[0]) @ np.abs(wide[1]).T)[at]
        if problem.scaled:
            result, magnitude = result * a[at], magnitude * np.abs(a[at])
    np.testing.assert_allclose(found.result, result, rtol=0, atol=1e-13 * max(1.0, magnitude.max(initial=0)))
    np.testing.assert_allclose(found.magnitude, magnitude, rtol=1e-12)
    assert found.result.shape == problem.out_shape


@pytest.mark.parametrize("op", Op)
def test_reference_on_some_rows_and_in_pieces(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(op, matrices()["hub"], 33)
    operands = dense_operands(problem)
    whole = reference(problem, operands)
    monkeypatch.setattr(module, "_CHUNK", 4000)
    rows = np.array([0, 3, 17, 39])
    part = reference(problem, operands, rows)
    chosen = np.isin(problem.matrix.rows_of_entries(), rows)
    np.testing.assert_array_equal(part.entries, np.flatnonzero(chosen))
    expected = whole.result[rows] if op is Op.SPMM else whole.result[chosen]
    np.testing.assert_allclose(part.result, expected, rtol=1e-12, atol=1e-12)
    out = whole.result.astype(np.float32)
    assert part.max_error(part.select(problem, out)) <= tolerance(problem)


def test_a_result_in_another_order_is_put_right() -> None:
    problem = Problem(Op.SDDMM, random_csr(30, 20, [7] * 29 + [0]), 8, DType.FLOAT32)
    nnz = problem.matrix.nnz
    order = np.random.default_rng(2).permutation(nnz).astype(np.int32)
    for rows in (None, np.array([3, 17])):
        part = reference(problem, dense_operands(problem), rows)
        whole = reference(problem, dense_operands(problem)).result[order].astype(np.float32)
        assert part.max_error(part.select(problem, whole, order)) <= tolerance(problem)
        assert part.max_error(part.select(problem, whole)) > 0.1
    for wrong, words in (
        (order[1:], r"shape \(203,\), found \(202,\)"),
        (np.where(order == 5, 6, order), "found 1 missing"),
        (order - 1, "found 1 missing"),
        (order + 1, "found 1 missing"),
    ):
        with pytest.raises(BuildError, match=words):
            part.select(problem, whole, wrong)
    dense = Problem(Op.SPMM, problem.matrix, 8, DType.FLOAT32)
    with pytest.raises(BuildError, match="with sddmm only, found one with spmm"):
        reference(dense, dense_operands(dense)).select(dense, np.zeros(dense.out_shape), order)


def test_max_error_is_infinite_where_it_must_be() -> None:
    problem = Problem(Op.SPMM, matrices()["empty_rows"], 3)
    found = reference(problem, dense_operands(problem))
    exact = found.result.copy()
    assert found.max_error(exact) == 0
    for row, value in ((0, 1e-30), (2, np.nan), (2, np.inf), (0, np.nan)):
        broken = exact.copy()
        broken[row, 1] = value
        assert found.max_error(broken) == np.inf


def test_sampled_rows() -> None:
    small = Problem(Op.SPMM, random_csr(5000, 10, [1] * 5000), 4)
    np.testing.assert_array_equal(sampled_rows(small), np.arange(5000))
    lengths = np.full(20_000, 400)
    lengths[12_345] = 777
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = (np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)).astype(np.int32)
    large = Problem(Op.SPMM, Csr((20_000, 1000), indptr, indices, np.ones(indices.size, np.float32)), 32)
    rows = sampled_rows(large, 1)
    assert SAMPLED_ROWS - 1 <= rows.size <= SAMPLED_ROWS
    assert (np.diff(rows) > 0).all()
    assert 12_345 in rows
    np.testing.assert_array_equal(rows, sampled_rows(large, 1))
    assert not np.array_equal(rows, sampled_rows(large, 2))


@pytest.mark.parametrize("num_rows", [600, 6000])
def test_the_checked_rows_have_a_greatest_amount_of_work(num_rows: int) -> None:
    lengths = np.full(num_rows, 6_000_000 // num_rows)
    lengths[77] += 1
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = (np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)).astype(np.int32)
    matrix = Csr((num_rows, 20_000), indptr, indices, np.ones(indices.size, np.float32))
    for width, share in ((300, 1.0), (3600, 0.1)):
        rows = sampled_rows(Problem(Op.SPMM, matrix, width), 1)
        assert 77 in rows
        assert (np.diff(rows) > 0).all()
        most = min(num_rows, SAMPLED_ROWS) if share == 1 else share * num_rows
        assert 0.97 * most <= rows.size <= most
        assert lengths[rows].sum() * width <= 2**31
    wide = Problem(Op.SPMM, matrix, 2**31 - 1)
    np.testing.assert_array_equal(sampled_rows(wide, 1), [77])


# counts


def test_flops_and_bytes() -> None:
    # 4 x 6, row 1 empty; columns 0, 2 and 5 in use.
    matrix = Csr.checked((4, 6), [0, 2, 2, 3, 5], [0, 2, 5, 0, 5], [1.5, 2.5, 3.5, 4.5, 5.5])
    pattern = 4 * (5 + 5)
    spmm = Problem(Op.SPMM, matrix, 8)
    assert spmm.flops() == 2 * 5 * 8
    assert spmm.operand_bytes() == 4 * (3 * 8 + 5)
    assert spmm.compulsory_bytes() == 4 * (3 * 8 + 5) + pattern + 4 * 4 * 8
    half = Problem(Op.SPMM, matrix, 8, DType.FLOAT16)
    assert half.compulsory_bytes() == 2 * (3 * 8 + 5) + pattern + 2 * 4 * 8
    sddmm = Problem(Op.SDDMM, matrix, 8)
    assert sddmm.flops() == 2 * 5 * 8
    assert sddmm.operand_bytes() == 4 * (3 + 3) * 8
    assert sddmm.compulsory_bytes() == 4 * (3 + 3) * 8 + pattern + 4 * 5
    scaled = Problem(Op.SDDMM, matrix, 8, scaled=True)
    assert scaled.operand_bytes() == sddmm.operand_bytes() + 4 * 5
