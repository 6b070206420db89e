"""SpMM over blocks on the matrix unit: every instance on the host, and what thread blocks read first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.dbsr import DbsrFormat
from spmark.impls.formats.srbcrs import SrBcrsFormat
from spmark.impls.kernels.block_spmm import HEAD, SPMM_BLOCKS, BlockSpmmPlan, block_heads, mma_pieces
from spmark.impls.runtime.host.target import HostTarget
from spmark.impls.runtime.template import Instance

RANDOM = np.random.default_rng(5)
# The second hundred of rows is empty, so that some block rows of every height are; nothing divides by a block.
MATRIX = random_csr(301, 217, [*RANDOM.integers(0, 30, 99), 217, *[0] * 128, *RANDOM.integers(0, 9, 73)])
target = table_target(SPMM_BLOCKS)


def check(problem: Problem, target: HostTarget, held: Any, **schedule: Any) -> BlockSpmmPlan:
    plan = BlockSpmmPlan(problem, target, held, {}, **schedule)
    run_checked(plan, problem)
    assert plan.stored == held.stored
    return plan


@pytest.mark.one_in(3)
@every_instance(SPMM_BLOCKS)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    rows, tile, depth = (int(instance.values[name]) for name in ("rows", "tile", "depth"))
    # One column tile and a part of another.
    width = tile + 8 if instance.values["vector"] == 8 else tile + 3
    problem = Problem(Op.SPMM, MATRIX, width, DType.FLOAT16)
    for steps, turned, parts in ((1, False, 3), (2, True, 1)):
        if instance.values["gathered"]:
            held: Any = SrBcrsFormat.from_csr(MATRIX, rows, steps * depth)
        else:
            held = (BsrFormat if turned else DbsrFormat).from_csr(MATRIX, rows, steps * depth)
        plan = check(problem, target, held, tile=tile, depth=depth, turned=turned, parts=parts)
        assert plan.config == {"tile": tile, "depth": depth, "turned": turned, "parts": parts}
        assert plan.deterministic


AWKWARD = {
    "ten_thousand_in_a_row": random_csr(20, 12_000, [3] * 7 + [10_000] + [0] * 12),
    "one_column": random_csr(70, 1, [int(i % 3 == 0) for i in range(70)]),
    "one_row": random_csr(1, 70, [40]),
    "nothing": random_csr(40, 30, [0] * 40),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [8, 1])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_matrices(name: str, width: int, target: TableTarget) -> None:
    matrix = AWKWARD[name]
    problem = Problem(Op.SPMM, matrix, width, DType.FLOAT16)
    depth = 32 if width == 8 else 16
    for held in (
        BsrFormat.from_csr(matrix, 32, 32),
        DbsrFormat.from_csr(matrix, 32, 32),
        SrBcrsFormat.from_csr(matrix, 16, 32),
    ):
        check(problem, target, held, tile=64, depth=depth, turned=True)
        check(problem, target, held, tile=64, depth=depth, turned=True, parts=8)


def test_pieces_are_what_lanes_hold() -> None:
    values = RANDOM.standard_normal((3, 32, 48)).astype(np.float32)
    pieces = mma_pieces(values)
    assert pieces.shape == (3, 3, 2, 32, 8)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        # Registers of mma.sync m16n8k16: row g or g + 8, columns 2t and 2t + 1 or those plus 8.
        rows = [16 + g, 16 + g, 16 + g + 8, 16 + g + 8] * 2
        cols = [32 + 2 * t + e for e in (0, 1, 0, 1, 8, 9, 8, 9)]
        np.testing.assert_array_equal(pieces[1, 2, 1, lane], values[1][rows, cols].astype(np.float16))


def test_heads_put_long_rows_first_and_hold_their_first_columns() -> None:
    counts = [2, 0, 20, 1]
    indptr = np.cumsum([0, *counts]).astype(np.int32)
    indices = RANDOM.permutation(100)[:23].astype(np.int32)
    listed = np.array([0, 3, 4, 9], np.int32)
    heads = block_heads(listed, indptr, indices, turn=2)
    assert heads[:, :3].tolist() == [[4, 2, 20], [0, 0, 2], [9, 22, 1], [3, 2, 0]]
    assert heads[:, 3].tolist() == [0, 2, 0, 0]  # the second row starts with its second block, two steps on
    assert np.all(heads[:, 4:8] == [1, 0, 0, 0])
    assert heads[0, 8:].tolist() == indices[2 : 2 + HEAD - 8].tolist()
    assert heads[1, 8:10].tolist() == indices[:2].tolist()
    assert np.all(block_heads(listed[:1], indptr[:2], None)[:, 8:] == 0)


def test_long_rows_are_cut_in_parts_that_stand_together() -> None:
    indptr = np.cumsum([0, 4, 0, 11, 21]).astype(np.int32)
    heads = block_heads(np.array([0, 1, 2, 5], np.int32), indptr, None, parts=3)
    assert np.all(np.diff(heads[:, 2]) <= 0)
    by_row = {row: sorted(heads[heads[:, 0] == row].tolist(), key=lambda head: head[5]) for row in (0, 1, ~2, ~5)}
    assert [head[:8] for head in by_row[0]] == [[0, 0, 4, 0, 1, 0, 0, 0]]
    assert [head[:8] for head in by_row[1]] == [[1, 4, 0, 0, 1, 0, 0, 0]]
    assert [head[1:8] for head in by_row[~2]] == [[4, 5, 0, 2, 0, 0, 0], [9, 6, 0, 2, 1, 0, 0]]
    assert [head[1:8] for head in by_row[~5]] == [
        [15, 7, 0, 3, 0, 2, 0],
        [22, 7, 0, 3, 1, 2, 0],
        [29, 7, 0, 3, 2, 2, 0],
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_counters_are_zero_again_after_each_run(turned: bool, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 136, DType.FLOAT16)  # two tiles of columns and a part of a third
    held = BsrFormat.from_csr(MATRIX, 32, 32)
    plan = check(problem, target, held, tile=64, depth=32, turned=turned, parts=4)
    (operand,) = dense_operands(problem)
    results = [np.full(problem.out_shape, np.nan, np.float16) for _ in range(2)]
    for out in results:
        plan.run([operand], out)
    assert reference(problem, [operand]).max_error(results[1]) <= tolerance(problem)
    np.testing.assert_array_equal(results[0], results[1])


def test_only_dbsr_clears_and_lists_what_it_holds(target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 8, DType.FLOAT16)
    plans = [
        BlockSpmmPlan(problem, target, kind.from_csr(MATRIX, 32, 32), {}, tile=64, depth=32)
        for kind in (BsrFormat, DbsrFormat)
    ]
    assert plans[0].stored == plans[1].stored
    assert plans[1].device_bytes - plans[0].device_bytes == 3 * (32 * 4 - HEAD * 4)  # rows to clear, heads saved


def test_blocks_that_no_kernel_takes_are_refused(small_matrix: Csr, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, small_matrix, 8, DType.FLOAT16)
    with pytest.raises(BuildError, match="expected rows out of"):
        BlockSpmmPlan(problem, target, BsrFormat.from_csr(small_matrix, 48, 32), {}, tile=64, depth=32)
    with pytest.raises(ValueError, match="divides 48 columns by a power of two, found 32"):
        BlockSpmmPlan(problem, target, BsrFormat.from_csr(small_matrix, 32, 48), {}, tile=64, depth=32)
