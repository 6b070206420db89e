"""Zeroing of listed rows, run on the host under sanitizers."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.row_use import RowUse
from spmark.impls.kernels import shared_rows
from spmark.impls.kernels.shared_rows import RowZeroing, SharedRows, shared_instances, zeroing_instance
from spmark.impls.runtime.device import find
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target


class ZeroingPlan(DevicePlan):
    def enqueue(self, operands: object, out: object) -> None:
        raise NotImplementedError


def zeroing_of(plan: DevicePlan, rows: np.ndarray, width: int, dtype: DType = DType.FLOAT32) -> RowZeroing:
    (kernel,) = plan.target.load([zeroing_instance(width, dtype)])
    return RowZeroing(plan, rows, width, kernel)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [1, 6, 8, 300])
def test_listed_rows_are_cleared_and_no_others(width: int, dtype: DType, small_matrix: object) -> None:
    random = np.random.default_rng(width)
    plan = ZeroingPlan(Problem(Op.SPMM, small_matrix, width, dtype), open_target(find("host-simt")), {})
    rows = np.array([0, 3, 11], np.int32)
    out = dtype.stored(random.standard_normal((12, width), np.float32))
    expected = out.copy()
    expected[rows] = 0
    zeroing_of(plan, rows, width, dtype).enqueue(out)
    np.testing.assert_array_equal(out, expected)
    assert plan.device_bytes == rows.nbytes


def test_more_rows_than_a_grid_has_blocks(small_matrix: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_rows, "_MAX_BLOCKS", 4)  # a thread block of the host takes its time
    width = 256  # a row takes all threads of a block
    plan = ZeroingPlan(Problem(Op.SPMM, small_matrix, width), open_target(find("host-simt")), {})
    rows = np.arange(4 * 2 + 3, dtype=np.int32) * 2
    out = np.ones((rows.size * 2, width), np.float32)
    zeroing_of(plan, rows, width).enqueue(out)
    assert (out[::2] == 0).all()
    assert (out[1::2] == 1).all()


@pytest.mark.parametrize(("width", "lanes"), [(1, 1), (4, 1), (12, 4), (40, 16), (600, 64)])
def test_narrow_rows_share_a_block(width: int, lanes: int, small_matrix: object) -> None:
    plan = ZeroingPlan(Problem(Op.SPMM, small_matrix, width), open_target(find("host-simt")), {})
    rows = np.arange(64 // lanes + 1, dtype=np.int32)[::-1].copy()
    out = np.ones((rows.size + 1, width), np.float32)
    cleared = zeroing_of(plan, rows, width)
    assert cleared._grid == (2, 1, 1)
    cleared.enqueue(out)
    assert (out[:-1] == 0).all()
    assert (out[-1] == 1).all()


def test_no_rows_are_no_launch(small_matrix: object) -> None:
    plan = ZeroingPlan(Problem(Op.SPMM, small_matrix, 4), open_target(find("host-simt")), {})
    out = np.ones((12, 4), np.float32)
    zeroing_of(plan, np.empty(0, np.int32), 4).enqueue(out)
    assert np.all(out == 1)


@pytest.mark.parametrize(
    ("dtype", "vector", "stored"), [(DType.FLOAT32, 1, 1), (DType.FLOAT32, 8, 4), (DType.FLOAT16, 4, 4)]
)
def test_stores_of_a_result_are_no_wider_than_the_plan_s_loads(dtype: DType, vector: int, stored: int) -> None:
    clearing, *_ = shared_instances(True, 64, dtype, vector)
    assert clearing.values["vector"] == stored  # the plan promises alignment to its loads alone


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize(("width", "vector"), [(6, 2), (8, 8), (72, 8), (600, 4)])
def test_sums_of_shared_rows_are_rounded_and_cleared(
    dtype: DType, width: int, vector: int, cached: bool, small_matrix: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a piece are cleared, all others left as they are, and the next run adds to zeros."""
    if not cached:
        monkeypatch.setattr(shared_rows, "_CACHED_BYTES", 0)
    random = np.random.default_rng(width)
    plan = ZeroingPlan(Problem(Op.SPMM, small_matrix, width, dtype), open_target(find("host-simt")), {})
    use = RowUse(12, np.array([1, 7, 8], np.int32), np.array([0, 11], np.int32))
    shared = SharedRows(plan, use, width, dtype, plan.load(shared_instances(True, width, dtype, vector)))
    assert shared.clears != cached
    assert plan.buffers[0][1] == cached  # a run finds the sums 0
    for _ in range(2):
        before = dtype.stored(random.standard_normal((12, width), np.float32))
        out, sums = before.copy(), random.standard_normal((3, width), np.float32)
        shared.before(out)
        np.testing.assert_array_equal(out, before)
        assert not shared.sums.any()
        shared.sums += sums
        shared.after(out)
        expected = before.copy()
        expected[use.shared], expected[use.empty] = dtype.stored(sums), 0
        np.testing.assert_array_equal(out, expected)
