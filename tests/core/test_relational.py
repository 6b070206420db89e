from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from relational import drawn, operand_arrays, relational_matrices, relational_problems
from scipy import sparse

from spmark.impls.core.errors import MatrixError, OperandError, ProblemError
from spmark.impls.core.operands import check_operands
from spmark.impls.core.operators import random_operands, reference
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import (
    MAX_RELATIONS,
    RelationalCsr,
    RelationalOp,
    RelationalProblem,
)
from spmark.impls.core.tolerance import tolerance

PROBLEMS = relational_problems((5, 3), (16, 32))


def obvious(problem: RelationalProblem, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Y by one edge after the other."""
    result = np.zeros(problem.out_shape)
    values, x, w = (problem.dtype.numbers(one) for one in (problem.values, x, w))
    for r, i, j, value in zip(*problem.matrix.edges, values, strict=True):
        result[i] += float(value) * (x[j].astype(np.float64) @ w[r].astype(np.float64))
    return result


@pytest.mark.parametrize("name", PROBLEMS)
def test_reference_is_the_sum_over_edges(name: str) -> None:
    problem = PROBLEMS[name]
    x, w = operand_arrays(problem)
    found = reference(problem, (x, w))
    np.testing.assert_allclose(found.result, obvious(problem, x, w), rtol=1e-12, atol=1e-12)
    assert found.result.shape == problem.out_shape
    wide = problem.matrix.wide
    values, x, w = (problem.dtype.numbers(one).astype(np.float32) for one in (problem.values, x, w))
    positive = RelationalCsr(replace(wide, values=abs(values)), problem.matrix.relations)
    scale = RelationalProblem(positive, problem.width_in, problem.width_out)
    np.testing.assert_allclose(found.magnitude, obvious(scale, abs(x), abs(w)), rtol=1e-12)


def test_reference_of_some_rows_and_of_operands_that_are_drawn_where_they_are_read() -> None:
    problem = PROBLEMS["hub-16-32-float32"]
    rows = np.array([0, 1, 7, 49])
    whole = reference(problem, operand_arrays(problem))
    part = reference(problem, random_operands(problem, 3), rows)
    np.testing.assert_allclose(part.result, whole.result[rows], rtol=1e-12)
    out = whole.result.astype(np.float32)
    assert part.max_error(out[rows]) <= tolerance(problem)
    assert tolerance(problem) == 64 * 2.0**-24  # 300 edges of 16 terms


def test_tolerance_of_one_edge_counts_its_terms_and_the_product_with_its_value() -> None:
    problem = PROBLEMS["one_edge-5-3-float32"]
    assert tolerance(problem) == pytest.approx(8 * 6**0.5 * 2.0**-24)


def test_any_order_of_edges_gives_the_same_matrix() -> None:
    given = drawn(20, 30, [40, 0, 25])
    order = np.random.default_rng(5).permutation(given.nnz)
    edges = tuple(each[order] for each in given.edges)
    again = RelationalCsr.of_edges((20, 30), 3, edges, given.wide.values[order])  # type: ignore[arg-type]
    assert again.hash == given.hash
    np.testing.assert_array_equal(again.wide.values, given.wide.values)


def test_edges_of_one_place_are_added_up_and_those_of_two_relations_are_not() -> None:
    found = RelationalCsr.of_edges((2, 3), 2, ([0, 0, 1], [1, 1, 1], [2, 2, 2]), [1.0, 2.0, 4.0])
    assert found.wide.values.tolist() == [3.0, 4.0]
    assert [each.tolist() for each in found.edges] == [[0, 1], [1, 1], [2, 2]]


def test_hash_tells_relations_apart() -> None:
    wide = RelationalCsr.of_edges((2, 3), 4, ([1], [1], [2])).wide
    assert len({RelationalCsr.checked(wide, relations).hash for relations in (1, 2, 3, 4, 6, 12)}) == 6


@pytest.mark.parametrize("name", relational_matrices())
def test_edges_by_relation(name: str) -> None:
    matrix = relational_matrices()[name]
    order, bounds = matrix.by_relation
    relation, rows, cols = (each[order].tolist() for each in matrix.edges)
    assert list(zip(relation, rows, cols, strict=True)) == sorted(zip(relation, rows, cols, strict=True))
    np.testing.assert_array_equal(bounds, np.searchsorted(relation, np.arange(matrix.relations + 1)))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (([0, 5], [0, 0], [0, 0]), r"expected edge types in \[0, 5\), found 5 at edge 1"),
        (([-1], [0], [0]), r"expected edge types in \[0, 5\), found -1 at edge 0"),
        (([0], [4], [0]), r"expected rows in \[0, 4\), found 4 at edge 0"),
        (([0], [0], [9]), r"expected columns in \[0, 3\), found 9 at edge 0"),
        (([0], [0, 1], [0]), r"expected rows as \(1,\) integers"),
        (([0.5], [0], [0]), r"expected edge types as \(1,\) integers, found float64"),
    ],
)
def test_bad_edges_are_refused(edges: Any, message: str) -> None:
    with pytest.raises(MatrixError, match=f"mine: {message}"):
        RelationalCsr.of_edges((4, 3), 5, edges, where="mine")


def test_bad_values_are_refused() -> None:
    with pytest.raises(MatrixError, match="expected a value for each of 1 edges"):
        RelationalCsr.of_edges((4, 3), 5, ([0], [0], [0]), [1.0, 2.0])
    with pytest.raises(MatrixError, match="expected finite values"):
        RelationalCsr.of_edges((4, 3), 5, ([0], [0], [0]), [np.inf])


@pytest.mark.parametrize("relations", [0, -1, MAX_RELATIONS + 1, 2.0, True])
def test_numbers_of_relations_out_of_range_are_refused(relations: Any) -> None:
    with pytest.raises(MatrixError, match="expected from 1 to 32,768 relations"):
        RelationalCsr.of_edges((4, 3), relations, ([0], [0], [0]))
    with pytest.raises(MatrixError, match="expected from 1 to 32,768 relations"):
        RelationalCsr.checked(sparse.csr_array((4, 32_769)), relations)


def test_columns_are_those_of_all_relations() -> None:
    with pytest.raises(MatrixError, match="10 columns, which 3 does not divide"):
        RelationalCsr.checked(sparse.csr_array((4, 10)), 3)
    with pytest.raises(MatrixError, match="columns times relations of at most 2"):
        RelationalCsr.of_edges((4, 1 << 20), 1 << 12, ([0], [0], [0]))


def test_bad_problems_are_refused() -> None:
    matrix = relational_matrices()["one_edge"]
    with pytest.raises(ProblemError, match="expected a RelationalCsr, found Csr"):
        RelationalProblem(matrix.wide, 4, 4)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="at least 1, found 0"):
        RelationalProblem(matrix, 4, 0)
    with pytest.raises(ProblemError, match="float64"):
        RelationalProblem(matrix, 4, 4, "float64")
    large = RelationalCsr.of_edges((1, 1), 1, ([0], [0], [0]), [1e6])
    with pytest.raises(MatrixError, match="beyond the range of float16"):
        RelationalProblem(large, 4, 4, DType.FLOAT16)


def test_weights_of_another_shape_are_refused() -> None:
    problem = PROBLEMS["one_edge-5-3-float32"]
    assert problem.op is RelationalOp.RGMS
    wanted, out = (problem.operand_shapes, problem.out_shape, problem.dtype), np.empty(problem.out_shape, np.float32)
    x, w = operand_arrays(problem)
    with pytest.raises(OperandError, match=r"rgms operand W .*: expected shape \(2, 5, 3\), found \(2, 3, 5\)"):
        check_operands(*wanted, (x, np.zeros((2, 3, 5), np.float32)), out)
    with pytest.raises(OperandError, match="rgms: expected 2 operands in a tuple, found 1"):
        check_operands(*wanted, (x,), out)
    assert len(check_operands(*wanted, (x, w), out)) == 3


def test_flops_and_bytes_of_edges_that_share_a_source_or_a_row() -> None:
    matrix = RelationalCsr.of_edges((4, 5), 3, ([0, 0, 0, 2], [0, 1, 2, 2], [3, 3, 3, 4]))
    problem = RelationalProblem(matrix, 6, 7, DType.FLOAT16)
    # Two pairs of relation and source, four pairs of relation and row.
    assert problem.flops() == 2 * (2 * 6 * 7 + 4 * 7)
    assert RelationalProblem(matrix, 7, 6).flops() == 2 * (2 * 6 * 7 + 4 * 6)
    turned = RelationalCsr.of_edges((5, 4), 3, ([0, 0, 0, 2], [3, 3, 3, 4], [0, 1, 2, 2]))
    assert RelationalProblem(turned, 6, 7).flops() == 2 * (2 * 6 * 7 + 4 * 6)
    assert problem.operand_bytes() == 2 * (4 + 2 * 6 + 2 * 6 * 7)
    assert problem.compulsory_bytes() == 2 * (4 + 2 * 6 + 2 * 6 * 7) + 4 * (5 + 4) + 2 * 4 * 7


def test_nothing_to_do_takes_no_flops() -> None:
    for width_in, width_out in product((1, 8), repeat=2):
        problem = RelationalProblem(relational_matrices()["no_edges"], width_in, width_out)
        assert problem.flops() == problem.operand_bytes() == 0
