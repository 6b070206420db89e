"""Tiny problems that every implementation is tried on: each is a shape or a row length at which kernels go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.operators import random_operands
from spmark.impls.core.problem import Csr, DType, Op, Problem

OPERATORS = {"spmm": (Op.SPMM, False), "sddmm": (Op.SDDMM, False), "sddmm_scaled": (Op.SDDMM, True)}
WIDTH = 32
ODD_WIDTHS = (1, 3, 20, 33, 130)


def random_csr(num_rows: int, num_cols: int, row_lengths: Sequence[int], seed: int = 0) -> Csr:
    """Draw a matrix with the given row lengths; values are a sign times [0.5, 1), so none is near zero."""
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(num_cols, length, replace=False)) for length in row_lengths]
    indptr = np.concatenate([[0], np.cumsum(row_lengths, dtype=np.int64)])
    indices = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64)
    values = rng.uniform(0.5, 1, indices.size) * rng.choice([-1, 1], indices.size)
    assert indptr.size == num_rows + 1
    return Csr.checked((num_rows, num_cols), indptr, indices, values.astype(np.float32))


@cache
def matrices() -> dict[str, Csr]:
    """Give the tiny matrices by name."""
    rng = np.random.default_rng(1)
    few = rng.integers(0, 6, 40)
    return {
        "one_by_one": random_csr(1, 1, [1]),
        "no_nonzeros": random_csr(5, 4, [0] * 5),
        "empty_rows": random_csr(45, 70, [0, 0, 5, 1, 0, *few[:37], 9, 0, 0]),
        "under_32_rows": random_csr(7, 47, [3, 11, 0, 2, 47, 1, 6]),
        "fully_dense": random_csr(16, 24, [24] * 16),
        "one_dense_row": random_csr(33, 65, [2] * 20 + [65] + [1] * 12),
        "wide": random_csr(3, 700, [260, 33, 5]),
        "tall": random_csr(700, 3, rng.integers(0, 4, 700).tolist()),
        "hub": random_csr(40, 2500, [*few[:17], 2000, *few[17:39]]),
        "lengths_of_warps": random_csr(9, 300, [31, 32, 33, 63, 64, 65, 127, 128, 129]),
    }


@cache
def problems() -> dict[str, Problem]:
    """Give the tiny problems by a readable name: every matrix at one width, every odd width on two matrices."""
    cases = [(name, WIDTH) for name in matrices()]
    cases += [(name, width) for name in ("empty_rows", "under_32_rows") for width in ODD_WIDTHS]
    return {
        f"{operator}-{name}-J{width}-{dtype}": Problem(op, matrices()[name], width, dtype, scaled)
        for name, width in cases
        for operator, (op, scaled) in OPERATORS.items()
        for dtype in DType
    }


def dense_operands(problem: Problem, seed: int = 0) -> list[NDArray[Any]]:
    """Give the problem's seeded operands as host arrays."""
    return [operand[np.arange(operand.shape[0]), :] for operand in random_operands(problem, seed)]
