"""rowsplit: every instance of its tables on the host under sanitizers, its order of work, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.rowsplit.plan import (
    INDEX_TYPES,
    SDDMM,
    SPMM,
    RowSplit,
    RowSplitSddmm,
    RowSplitSpmm,
)
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance

# Rows that start at every offset from a boundary of 16 bytes; stages that end in a row, with it, and long after it.
MATRIX = random_csr(25, 97, [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 96, 97, 0, 5, 1, 1, 4, 40, 12, 0])
HOST = find("host-simt")
spmm_target = table_target(SPMM)
sddmm_target = table_target(SDDMM)


@pytest.mark.one_in(5)
@every_instance(SPMM)
def test_every_spmm_instance(instance: Instance, spmm_target: TableTarget) -> None:
    values = instance.values
    tile = {name: int(values[name]) for name in ("vector", "lanes", "tiles")}
    index = next(name for name, type_ in INDEX_TYPES.items() if type_ == values["Index"])
    # All columns of one tile and a part of the next one's: the last lanes have nothing to store.
    width = tile["vector"] * (tile["lanes"] * tile["tiles"] + 3)
    problem = Problem(Op.SPMM, MATRIX, width, DTYPES[str(values["T"])])
    run_checked(RowSplitSpmm(problem, spmm_target, index=index, **tile, depth=32), problem)


@every_instance(SDDMM)
def test_every_sddmm_instance(instance: Instance, sddmm_target: TableTarget) -> None:
    values = instance.values
    schedule = {name: int(values[name]) for name in ("vector", "threads")}
    width = schedule["vector"] * (8 + 3)
    for scaled in (False, True):
        problem = Problem(Op.SDDMM, MATRIX, width, DTYPES[str(values["T"])], scaled=scaled)
        run_checked(RowSplitSddmm(problem, sddmm_target, **schedule), problem)


@pytest.mark.parametrize("depth", [32, 64, 128])
@pytest.mark.parametrize("dtype", list(DType))
def test_a_row_of_many_stages(dtype: DType, depth: int, spmm_target: TableTarget) -> None:
    matrix = random_csr(3, 3000, [3, 2501, 130])
    problem = Problem(Op.SPMM, matrix, 8, dtype)
    plan = RowSplitSpmm(problem, spmm_target, index="int32", vector=2, lanes=8, tiles=1, depth=depth)
    run_checked(plan, problem)
    assert plan.stored == matrix.nnz


def test_what_stands_in_other_rows_of_b_does_not_reach_a_result(spmm_target: TableTarget) -> None:
    """A copy starts in the row before; what it brings from there is not multiplied, not even by zero."""
    matrix = Csr((2, 8), np.array([0, 3, 5], np.int32), np.array([0, 1, 2, 5, 6], np.int32), np.ones(5, np.float32))
    problem = Problem(Op.SPMM, matrix, 8)
    (dense,) = dense_operands(problem)
    dense[:3] = np.nan
    out = np.empty(problem.out_shape, np.float32)
    RowSplitSpmm(problem, spmm_target, index="int32", vector=1, lanes=8, tiles=1, depth=32).run((dense,), out)
    assert np.isnan(out[0]).all()
    np.testing.assert_allclose(out[1], dense[5] + dense[6], rtol=1e-6)


@pytest.mark.parametrize(("beyond", "words"), [(1, "expected J of at most 2,097,120, found 2,097,121"), (2, None)])
def test_widths_beyond_the_grid_are_refused(beyond: int, words: str | None) -> None:
    """An odd J has loads of one, and 32 lanes of each of 65,535 blocks; an even J has wider loads."""
    assert RowSplit().unsupported(Problem(Op.SPMM, MATRIX, 32 * 65535 + beyond), HOST) == words


def test_short_columns_are_for_narrow_matrices() -> None:
    for columns, expected in ((32_768, "int16"), (32_769, "int32")):
        matrix = Csr(
            (1, columns), np.array([0, 1], np.int32), np.array([columns - 1], np.int32), np.ones(1, np.float32)
        )
        problem = Problem(Op.SPMM, matrix, 32, DType.FLOAT16)
        plan = RowSplit().build(problem, HOST)
        assert plan.config["index"] == expected
        run_checked(plan, problem)
