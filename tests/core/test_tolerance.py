"""The tolerance lets every order of float32 summation through, and nothing that computes something else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from problems import dense_operands, random_csr

from spmark.impls.core.operators import random_values, reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance


def forward(terms: np.ndarray) -> np.ndarray:
    return np.cumsum(terms, axis=0, dtype=np.float32)[-1]


def reverse(terms: np.ndarray) -> np.ndarray:
    return forward(terms[::-1])


def pairwise(terms: np.ndarray) -> np.ndarray:
    while terms.shape[0] > 1:
        if terms.shape[0] % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[:1])])
        terms = terms[::2] + terms[1::2]
    return terms[0]


def blocked(terms: np.ndarray, lanes: int = 32) -> np.ndarray:
    """One running sum per lane, then the lanes: what a warp does."""
    padded = np.concatenate([terms, np.zeros((-terms.shape[0] % lanes, *terms.shape[1:]), np.float32)])
    return pairwise(np.cumsum(padded.reshape(-1, lanes, *terms.shape[1:]), axis=0, dtype=np.float32)[-1])


def one_row(num_terms: int, dtype: DType = DType.FLOAT32, width: int = 64) -> tuple[Problem, list[np.ndarray]]:
    """Give SpMM with one row of ``num_terms``, drawn so that its longest sums wander the farthest."""
    values = random_values(np.arange(num_terms, dtype=np.uint64), num_terms, 0)
    matrix = Csr((1, num_terms), np.array([0, num_terms], np.int32), np.arange(num_terms, dtype=np.int32), values)
    problem = Problem(Op.SPMM, matrix, width, dtype)
    return problem, dense_operands(problem)


@pytest.mark.parametrize("order", [forward, reverse, pairwise, blocked])
@pytest.mark.parametrize("num_terms", [1, 2, 33, 1000, 10_000, 100_000])
def test_any_order_of_summation_passes(num_terms: int, order: Callable[[np.ndarray], np.ndarray]) -> None:
    problem, (dense,) = one_row(num_terms)
    out = order(problem.values[:, None] * dense)[None]
    assert reference(problem, [dense]).max_error(out) <= tolerance(problem)


def test_no_more_is_allowed_beyond_64_terms() -> None:
    assert tolerance(one_row(64)[0]) == tolerance(one_row(100_000)[0]) == 64 * 2.0**-24


@pytest.mark.parametrize("num_terms", [1, 2, 33, 1000, 10_000])
def test_float16_accumulated_in_float32_passes(num_terms: int) -> None:
    problem, (dense,) = one_row(num_terms, DType.FLOAT16)
    out = forward(problem.values[:, None].astype(np.float32) * dense.astype(np.float32))[None].astype(np.float16)
    assert reference(problem, [dense]).max_error(out) <= tolerance(problem)


@pytest.mark.parametrize("width", [1, 3, 64, 512, 10_000])
def test_sddmm_in_any_order_passes(width: int) -> None:
    problem = Problem(Op.SDDMM, random_csr(6, 9, [4] * 6), width, scaled=True)
    x, y = dense_operands(problem)
    terms = x[problem.matrix.rows_of_entries()].T * y[problem.matrix.indices].T
    for order in (forward, reverse, pairwise, blocked):
        out = order(terms) * problem.values
        assert reference(problem, [x, y]).max_error(out) <= tolerance(problem)


# tolerance: what it must catch


def caught(problem: Problem, out: np.ndarray, operands: list[np.ndarray]) -> bool:
    return reference(problem, operands).max_error(out) > tolerance(problem)


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("num_terms", [2, 33, 300, 1000])
def test_a_dropped_or_doubled_term_is_caught(num_terms: int, dtype: DType) -> None:
    problem, (dense,) = one_row(num_terms, dtype)
    numbers = dtype.numbers
    terms = numbers(problem.values)[:, None].astype(np.float64) * numbers(dense)
    exact = terms.sum(0)
    for at in (0, num_terms // 2, num_terms - 1):
        for wrong in (exact - terms[at], exact + terms[at]):
            assert caught(problem, dtype.stored(wrong[None].astype(np.float32)), [dense])


@pytest.mark.parametrize("dtype", DType)
def test_a_swapped_pair_is_caught(dtype: DType) -> None:
    problem, (dense,) = one_row(300, dtype)
    swapped = dense.copy()
    swapped[[10, 11]] = swapped[[11, 10]]
    out = dtype.numbers(problem.values).astype(np.float64) @ dtype.numbers(swapped)
    assert caught(problem, dtype.stored(out[None].astype(np.float32)), [dense])


def truncated(array: np.ndarray, bits: int) -> np.ndarray:
    """Round float32 to ``bits`` fewer bits of significand, to nearest: 13 is TF32, 16 is bfloat16."""
    words = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (((words + (1 << (bits - 1))) >> bits) << bits).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("bits", [13, 16])
@pytest.mark.parametrize("num_terms", [1, 3, 30, 300])
def test_rounded_inputs_are_caught(num_terms: int, bits: int) -> None:
    """TF32 and bfloat16 tensor cores round the inputs of a float32 product."""
    problem, (dense,) = one_row(num_terms)
    out = truncated(problem.values, bits).astype(np.float64) @ truncated(dense, bits)
    assert caught(problem, out[None].astype(np.float32), [dense])


def half_sums(problem: Problem, dense: np.ndarray, terms: int) -> np.ndarray:
    """Sum ``terms`` at a time in float64, and those sums one by one in float16."""
    total = np.zeros(problem.width, np.float16)
    for start in range(0, problem.matrix.nnz, terms):
        piece = slice(start, start + terms)
        total = (total + problem.values[piece].astype(np.float64) @ dense[piece]).astype(np.float16)
    return total[None]


def test_float16_accumulation_is_caught() -> None:
    """Over many columns: the signs are random, so most sums in float16 end close to where they should."""
    problem, (dense,) = one_row(1000, DType.FLOAT16, width=4000)
    assert caught(problem, half_sums(problem, dense, 1), [dense])


@pytest.mark.parametrize("num_terms", [33, 300, 10_000])
def test_declared_half_sums_pass(num_terms: int) -> None:
    problem, (dense,) = one_row(num_terms, DType.FLOAT16, width=1000)
    allowed = tolerance(problem, half_sums=True)
    assert reference(problem, [dense]).max_error(half_sums(problem, dense, 32)) <= allowed


def test_declared_half_sums_do_not_hide_a_dropped_term() -> None:
    problem, (dense,) = one_row(100, DType.FLOAT16)
    exact = problem.values[1:].astype(np.float64) @ dense[1:]
    assert reference(problem, [dense]).max_error(exact[None].astype(np.float16)) > tolerance(problem, half_sums=True)


def test_wrong_scaling_is_caught() -> None:
    problem = Problem(Op.SDDMM, random_csr(6, 9, [4] * 6), 32, scaled=True)
    operands = dense_operands(problem)
    unscaled = reference(Problem(Op.SDDMM, problem.matrix, 32), operands).result
    assert caught(problem, unscaled.astype(np.float32), operands)
