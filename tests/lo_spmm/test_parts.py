"""Columns in parts: where they are cut, what each tile keeps, and that the parts add up to C."""

from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, matrices, random_csr, run_checked
from ptx_machine import Machine

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.lo_spmm.emit_ptx import entry_ptx, function_ptx
from spmark.impls.lo_spmm.kernel import UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.parts import PartSums, part_of_columns, tiles_of, workspace_bytes
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.reorder import Reordering, deal_rows
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.space import SPLITS, TileSize, grid_of
from spmark.impls.runtime.device import find, shipped_calibration
from spmark.impls.runtime.target import open_target

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
MATRIX = random_csr(11, 30, [3, 0, 9, 1, 1, 0, 12, 4, 30, 2, 5])
FEW_ROWS = Problem(Op.SPMM, random_csr(96, 2000, [200] * 96), 256)


@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize("split", SPLITS)
def test_parts_hold_about_as_many_entries(name: str, split: int) -> None:
    matrix = matrices()[name]
    part_of = part_of_columns(matrix, split)
    assert part_of.shape == (matrix.num_cols,)
    assert (np.diff(part_of) >= 0).all()
    assert part_of.min(initial=0) >= 0
    assert part_of.max(initial=0) < split
    if matrix.nnz:
        held = np.bincount(part_of[matrix.indices], minlength=split)
        assert abs(held - matrix.nnz / split).max() <= np.bincount(matrix.indices).max()
    if split > 1:
        np.testing.assert_array_equal(part_of // 2, part_of_columns(matrix, split // 2))


@pytest.mark.parametrize("split", [2, 8])
def test_tiles_are_cut_by_column(split: int) -> None:
    """Against a walk over all entries: each lies in one tile, in its part, under its row, in the order of columns."""
    dealt = deal_rows(MATRIX, 4)
    tiles = make_tiles(MATRIX, MATRIX.values, dealt)
    part_of = part_of_columns(MATRIX, split)
    cut = tiles_of(Problem(Op.SPMM, MATRIX, 8), dealt, split)
    assert len(cut) == split * len(tiles)
    found: dict[tuple[int, int], float] = {}
    for number, tile in enumerate(cut):
        part, whole = divmod(number, len(tiles))
        np.testing.assert_array_equal(tile.rows, tiles[whole].rows + part * MATRIX.num_rows)
        assert tile.starts[0] == 0
        assert tile.starts[-1] == tile.nnz == tile.sums.size
        assert (np.diff(tile.cols) > 0).all()
        for at, column in enumerate(tile.cols.tolist()):
            assert part_of[column] == part
            for entry in range(tile.starts[at], tile.starts[at + 1]):
                key = int(tile.rows[tile.sums[entry]]) - part * MATRIX.num_rows, column
                assert key not in found
                found[key] = float(tile.values[entry])
    rows = MATRIX.rows_of_entries().tolist()
    expected = zip(zip(rows, MATRIX.indices.tolist(), strict=True), MATRIX.values.tolist(), strict=True)
    assert found == dict(expected)


@pytest.mark.parametrize("split", [2, 4])
@pytest.mark.parametrize(("size", "width"), [(TileSize(4, 32), 70), (TileSize(2, 32, 2, 3), 70)], ids=str)
def test_ptx(split: int, size: TileSize, width: int) -> None:
    """Seven rows of parts and three tiles of a block: some blocks hold tiles of two parts."""
    problem = Problem(Op.SPMM, MATRIX, width)
    tiles = tiles_of(problem, deal_rows(MATRIX, size.tile_rows), split)
    dispatch = np.arange(len(tiles), dtype=np.int32)
    kernel = UnrolledKernel(tiles, dispatch, width, size.cpt, 3, followed=True)
    functions = "".join(function_ptx(kernel, number) for number in range(len(tiles)))
    operands = dense_operands(problem)
    partial = np.zeros((split, *problem.out_shape), np.float32)
    machine = Machine(entry_ptx(kernel, "sm_90") + functions, operands[0], partial)
    machine.launch(grid_of(size, len(tiles), width), size.block_threads, size.threads)
    assert reference(problem, operands).max_error(partial.sum(0, dtype=np.float32)) <= tolerance(problem)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("rows", "width"), [(11, 36), (11, 6), (11, 7), (1, 33)])
def test_on_the_host(split: int, rows: int, width: int) -> None:
    """Every kernel that adds parts, under sanitizers; a second run finds what the first left in the workspace."""
    lengths = [3, 0, 9, 1, 1, 0, 12, 4, 30, 2, 5][-rows:]
    problem = Problem(Op.SPMM, random_csr(rows, 30, lengths), width)
    plan = LoSpmm(tile_rows=4, threads=32, cpt=1, tiles_per_block=2, split=split).build(problem, find("host-simt"))
    assert plan.config["split"] == split
    for _ in range(2):
        run_checked(plan, problem)
    assert plan.device_bytes >= workspace_bytes(problem, split) == (split > 1) * split * rows * width * 4


def test_parts_are_added_in_their_order() -> None:
    problem = Problem(Op.SPMM, random_csr(3, 9, [3, 2, 4]), 50)
    sums = PartSums(open_target(find("host-simt")), problem, 4)
    rng = np.random.default_rng(0)
    sums.partial[...] = rng.uniform(-1, 1, sums.partial.shape) * 10.0 ** rng.integers(-6, 6, sums.partial.shape)
    out = np.full(problem.out_shape, np.nan, np.float32)
    sums.enqueue(out)
    expected = sums.partial[0]
    for part in sums.partial[1:]:
        expected = expected + part
    np.testing.assert_array_equal(out, expected)


def test_few_rows_are_split_where_nothing_says_otherwise() -> None:
    found = explore(FEW_ROWS, H200, Pins(split=0)).survivors.sizes
    assert {size.split for size in found} == set(SPLITS)
    blocks = [
        int(np.prod(grid_of(size, -(-96 // size.tile_rows), 256))) * size.split for size in found if size.split > 1
    ]
    assert max(blocks) < 4 * H200.num_sms
    assert {size.split for size in explore(FEW_ROWS, H200, Pins(split=1)).survivors.sizes} == {1}
    many = Problem(Op.SPMM, random_csr(600, 200, [20] * 600), 8192)
    wide = explore(many, H200, Pins(tile_rows=8, threads=128, split=0, order=Reordering.NONE))
    assert {size.split for size in wide.survivors.sizes} == {1}


def test_what_cannot_be_split_says_why() -> None:
    with pytest.raises(ValueError, match="expected split out of 0, 1, 2, 4, 8, found 3"):
        LoSpmm(split=3)
    indptr = np.zeros(20_001, np.int32)
    indptr[1:] = 1
    tall = Csr((20_000, 4), indptr, np.zeros(1, np.int32), np.ones(1, np.float32))
    assert "in all parts, found 80,000" in str(LoSpmm(split=4).unsupported(Problem(Op.SPMM, tall, 8), H200))
    assert "8 times C below 2 GiB" in str(LoSpmm(split=8).unsupported(Problem(Op.SPMM, tall, 4096), H200))
    assert LoSpmm(split=2).unsupported(Problem(Op.SPMM, tall, 4096), H200) is None
