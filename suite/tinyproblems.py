"""Tiny problems that every implementation is tried on: each is a shape or a row length at which kernels go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
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


_FAR_WIDTH = 1024
_FAR_COLUMNS = 2**31 // _FAR_WIDTH + 64
_FAR_LENGTHS = (3, 33, 0, 1, 17)


def far_problem(op: Op, dtype: DType) -> Problem:
    """Give a problem whose second operand has more than 2^31 elements: most non-zeros are in the last columns of A."""
    rng = np.random.default_rng(8)
    rows = [
        np.sort(np.append(rng.integers(9), _FAR_COLUMNS - 1 - rng.permutation(60)[: n - 1])) for n in _FAR_LENGTHS if n
    ]
    indices = np.concatenate(rows)
    indptr = np.append(0, np.cumsum(_FAR_LENGTHS))
    values = rng.uniform(0.5, 1, indices.size).astype(np.float32)
    return Problem(op, Csr.checked((len(_FAR_LENGTHS), _FAR_COLUMNS), indptr, indices, values), _FAR_WIDTH, dtype)


def far_operands(problem: Problem, path: Path) -> list[NDArray[Any]]:
    """Give operands of a `far_problem`; the large one is a sparse file at ``path``, of which few pages are read."""
    rng, dtype = np.random.default_rng(9), problem.dtype.numpy
    with path.open("wb") as file:
        file.truncate(_FAR_COLUMNS * _FAR_WIDTH * dtype.itemsize)
        for column in np.unique(problem.matrix.indices).tolist():
            file.seek(column * _FAR_WIDTH * dtype.itemsize)
            file.write(rng.uniform(0.5, 1, _FAR_WIDTH).astype(dtype).tobytes())
    operands: list[NDArray[Any]] = [np.memmap(path, dtype, "r", shape=(_FAR_COLUMNS, _FAR_WIDTH))]
    if problem.op is Op.SDDMM:
        operands.insert(0, rng.uniform(0.5, 1, (len(_FAR_LENGTHS), _FAR_WIDTH)).astype(dtype))
    return operands


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
