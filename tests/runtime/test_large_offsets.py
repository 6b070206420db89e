"""Operands of more than 2^31 elements: rows of B and Y whose offsets 32 bits do not hold.

They are sparse files of which the ring maps the pages that are read, so no memory of that size is needed.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS, create

WIDTH = 1024
COLUMNS = 2**31 // WIDTH + 64
LENGTHS = (3, 33, 0, 1, 17)


def runs_on_the_host(name: str) -> bool:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    return DeviceKind.HOST_SIMT in getattr(import_module(module), label).devices


def last_columns() -> Csr:
    """Draw most columns among the last, and the first of each row among the first ones."""
    rng = np.random.default_rng(8)
    rows = [np.sort(np.append(rng.integers(9), COLUMNS - 1 - rng.permutation(60)[: n - 1])) for n in LENGTHS if n]
    indices = np.concatenate(rows)
    return Csr.checked(
        (len(LENGTHS), COLUMNS),
        np.append(0, np.cumsum(LENGTHS)),
        indices,
        rng.uniform(0.5, 1, indices.size).astype(np.float32),
    )


def sparse_operand(path: Path, problem: Problem) -> np.memmap:
    """Make a file of zeros with drawn values in the rows that the matrix names, mapped read-only."""
    rng = np.random.default_rng(9)
    dtype = problem.dtype.numpy
    with path.open("wb") as file:
        file.truncate(COLUMNS * WIDTH * dtype.itemsize)
        for column in np.unique(problem.matrix.indices).tolist():
            file.seek(column * WIDTH * dtype.itemsize)
            file.write(rng.uniform(0.5, 1, WIDTH).astype(dtype).tobytes())
    return np.memmap(path, dtype, "r", shape=(COLUMNS, WIDTH))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("op", [Op.SPMM, Op.SDDMM])
@pytest.mark.parametrize("name", list(filter(runs_on_the_host, IMPLEMENTATIONS)))
def test_rows_beyond_32_bits(name: str, op: Op, tmp_path: Path) -> None:
    implementation, spec = create(name), find("host-simt")
    if op not in implementation.ops:
        pytest.skip(f"{name} has no {op}")
    problems = [Problem(op, last_columns(), WIDTH, dtype) for dtype in DType]
    reasons = [implementation.unsupported(one, spec) for one in problems]
    if None not in reasons:
        pytest.skip(f"{name}: {reasons[0]}")
    problem = problems[reasons.index(None)]
    plan = implementation.build(problem, spec)
    operands: list[np.ndarray] = [sparse_operand(tmp_path / "operand", problem)]
    if op is Op.SDDMM:
        left = np.random.default_rng(10).uniform(0.5, 1, (len(LENGTHS), WIDTH))
        operands.insert(0, left.astype(problem.dtype.numpy))
    out = np.full(problem.out_shape, np.nan, problem.dtype.numpy)
    plan.run(operands, out)
    assert reference(problem, operands).max_error(out) <= tolerance(problem, plan.half_sums)
