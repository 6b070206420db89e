"""Tiny problems of RGMS by name, and what tests do with them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.operators import random_operands, reference
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import (
    RelationalCsr,
    RelationalProblem,
)
from spmark.impls.core.tolerance import tolerance

SEED = 3


def drawn(num_rows: int, num_cols: int, counts: list[int], seed: int = 0, hub: int = 0) -> RelationalCsr:
    """Draw edges, ``counts`` of each relation, of which ``hub`` more end in row 1; values are none near zero."""
    rng, relations = np.random.default_rng(seed), len(counts)
    relation = np.concatenate([np.repeat(np.arange(relations), counts), rng.integers(0, relations, hub)])
    rows = rng.integers(0, num_rows, relation.size)
    rows[relation.size - hub :] = 1
    cols = rng.integers(0, num_cols, relation.size)
    _, first = np.unique((relation * num_rows + rows) * num_cols + cols, return_index=True)
    values = (rng.uniform(0.5, 1, first.size) * rng.choice([-1, 1], first.size)).astype(np.float32)
    return RelationalCsr.of_edges((num_rows, num_cols), relations, (relation[first], rows[first], cols[first]), values)


def kernel_map(num_rows: int, seed: int = 1, offsets: int = 27) -> RelationalCsr:
    """Draw a map of some offsets in which no two edges of an offset share a row; all values are 1."""
    rng = np.random.default_rng(seed)
    kept = [
        np.sort(rng.choice(num_rows, num_rows if r == offsets // 2 else int(rng.integers(0, 9)), False))
        for r in range(offsets)
    ]
    relation = np.repeat(np.arange(offsets), [rows.size for rows in kept])
    rows, cols = np.concatenate(kept), np.concatenate([rng.permutation(num_rows)[: rows.size] for rows in kept])
    return RelationalCsr.of_edges((num_rows, num_rows), offsets, (relation, rows, cols))


@cache
def relational_matrices() -> dict[str, RelationalCsr]:
    """Give the tiny matrices by name."""
    nothing = np.zeros(0, np.int64)
    return {
        "one_edge": RelationalCsr.of_edges((3, 5), 2, ([1], [2], [4])),
        "no_edges": RelationalCsr.of_edges((4, 3), 3, (nothing, nothing, nothing)),
        "one_relation": drawn(40, 30, [150]),
        "empty_relations": drawn(33, 47, [0, 70, 0, 0, 1, 20, 0]),
        "many_relations": drawn(25, 31, [int(n) for n in np.random.default_rng(2).integers(0, 4, 300)]),
        "hub": drawn(50, 400, [90, 5, 60], hub=300),
        "kernel_map": kernel_map(70),
    }


def relational_problems(*widths: tuple[int, int]) -> dict[str, RelationalProblem]:
    """Give every tiny matrix at these widths and all types."""
    return {
        f"{name}-{width_in}-{width_out}-{dtype}": RelationalProblem(matrix, width_in, width_out, dtype)
        for name, matrix in relational_matrices().items()
        for width_in, width_out in widths
        for dtype in DType
    }


def operand_arrays(problem: RelationalProblem, seed: int = SEED) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give X and W as arrays."""
    x, w = (np.empty(shape, problem.dtype.numpy) for shape in problem.operand_shapes)
    for source, array in zip(random_operands(problem, seed), (x, w), strict=True):
        source.fill(array)
    return x, w


def run_relational(plan: Any, problem: RelationalProblem, runs: int = 2) -> NDArray[Any]:
    """Run a plan on the host, each time over NaN, hold its results against float64, and give the last."""
    operands = operand_arrays(problem)
    expected, allowed = reference(problem, operands), tolerance(problem)
    allowed += plan.half_sums * 2.0**-problem.dtype.digits  # one rounding of each sum, whatever the number of terms
    out = np.empty(problem.out_shape, problem.dtype.numpy)
    for _ in range(runs):
        out.fill(problem.dtype.nan)
        plan.run(operands, out)
        error = expected.max_error(out)
        assert error <= allowed, (error, allowed)
    return out
