"""Whole kernels in PTX, entry point included, followed thread by thread."""

from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, random_csr
from ptx_machine import Machine

from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.emit_ptx import entry_ptx, function_ptx
from spmark.impls.lo_spmm.kernel import Ending, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.lo_spmm.space import TileSize, grid_of

MATRIX = random_csr(11, 30, [3, 2, 9, 1, 1, 4, 12, 4, 30, 2, 5])


def kernel_of(matrix: Csr, rows: int, width: int, *more: int, **others: object) -> UnrolledKernel:
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, rows))
    return UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), width, *more, **others)  # type: ignore[arg-type]


def launch(kernel: UnrolledKernel, size: TileSize, operand: np.ndarray, out: np.ndarray) -> Machine:
    functions = "".join(function_ptx(kernel, number) for number in range(len(kernel.tiles)))
    machine = Machine(entry_ptx(kernel, "sm_90") + functions, operand, out)
    machine.launch(grid_of(size, kernel.dispatch.size, kernel.width), size.block_threads, size.threads)
    return machine


@pytest.mark.parametrize(
    ("size", "width"),
    [(TileSize(4, 32), 70), (TileSize(4, 32, 2, 2), 70), (TileSize(2, 32, 4, 4), 132), (TileSize(6, 64, 1, 8), 33)],
    ids=str,
)
@pytest.mark.parametrize("warm", [False, True])
def test_spmm(size: TileSize, width: int, warm: bool) -> None:
    """J is no multiple of N1, nor the tiles of those of a block: some threads have nothing to do."""
    problem = Problem(Op.SPMM, MATRIX, width)
    kernel = kernel_of(MATRIX, size.tile_rows, width, size.cpt, 3, warm=warm)
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, np.nan, np.float32)
    machine = launch(kernel, size, operands[0], out)
    assert reference(problem, operands).max_error(out) <= tolerance(problem)
    assert machine.warmed == (set(range(operands[0].nbytes // 128)) if warm else set())


@pytest.mark.parametrize("size", [TileSize(2, 32), TileSize(2, 32, 2, 2), TileSize(4, 32, 4, 3)], ids=str)
@pytest.mark.parametrize(
    "lengths",
    [[0, 0, 9, 1, 12], [3, 0, 9, 0, 0, 4], [3, 9, 1, 0, 0, 0], [0, 0, 5, 0, 0], [4, *[0] * 270, 3]],
    ids=["first", "middle", "last", "all_but_one", "most"],
)
def test_empty_rows_are_written_by_the_kernel(lengths: list[int], size: TileSize) -> None:
    """J is no multiple of N1; where most rows are empty some tiles have no others."""
    problem = Problem(Op.SPMM, random_csr(len(lengths), 30, lengths), 44)
    kernel = kernel_of(problem.matrix, size.tile_rows, 44, size.cpt, 3)
    assert (len(kernel.tiles) > len(deal_rows(problem.matrix, size.tile_rows))) == (len(lengths) > 256)
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, np.nan, np.float32)
    launch(kernel, size, operands[0], out)
    assert reference(problem, operands).max_error(out) <= tolerance(problem)
    assert not out[np.array(lengths) == 0].any()


@pytest.mark.parametrize(
    ("conv", "size"),
    [
        (ConvShape(2, 3, 7, 6, 4, (3, 3), 1, 1), TileSize(2, 32)),
        (ConvShape(2, 2, 8, 9, 3, (3, 2), 2, 1), TileSize(2, 32, 1, 2)),
        (ConvShape(3, 5, 5, 5, 6, (1, 1), 1, 0), TileSize(4, 64)),
        (ConvShape(1, 2, 9, 11, 3, (5, 3), 3, 2), TileSize(3, 32)),
    ],
    ids=str,
)
def test_conv2d(conv: ConvShape, size: TileSize) -> None:
    """What the loops of im2col give, with the bias and the activation; nothing outside of the images is read."""
    rng = np.random.default_rng(0)
    depth = conv.channels * conv.taps[0] * conv.taps[1]
    lengths = rng.integers(1, depth + 1, conv.filters)
    lengths[[1, 2]] = 0  # their pixels hold what the activation makes of a bias each
    matrix = random_csr(conv.filters, depth, lengths.tolist())
    bias = rng.uniform(-1, 1, conv.filters).astype(np.float32)
    kernel = kernel_of(matrix, size.tile_rows, conv.columns, 1, 4, conv=conv, ending=Ending(bias, relu=True))
    images = rng.uniform(-1, 1, (conv.batch, conv.channels, conv.height, conv.width)).astype(np.float32)
    out = np.full((conv.batch, conv.filters, *conv.out_size), np.nan, np.float32)
    launch(kernel, size, images, out)
    edge = conv.padding
    padded = np.pad(images.astype(np.float64), ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    columns = np.zeros((depth, conv.batch, *conv.out_size))
    for k in range(depth):
        channel, tap = divmod(k, conv.taps[0] * conv.taps[1])
        down, right = divmod(tap, conv.taps[1])
        seen = padded[:, channel, down :: conv.stride, right :: conv.stride]
        columns[k] = seen[:, : conv.out_size[0], : conv.out_size[1]]
    dense = np.zeros(matrix.shape)
    dense[matrix.rows_of_entries(), matrix.indices] = matrix.values
    expected = np.maximum(np.einsum("ok,knyx->noyx", dense, columns) + bias[:, None, None], 0)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cpt", [1, 4])
def test_the_last_columns_of_the_widest_operand(cpt: int) -> None:
    """Places are found in 32 bits as far as plans go: arrays below 2 GiB, of which only these pages are touched."""
    width = (1 << 29) - 4
    kernel = kernel_of(random_csr(1, 1, [1]), 1, width, cpt)
    operand, out = np.zeros((1, width), np.float32), np.zeros((1, width), np.float32)
    operand[0, -124:] = np.linspace(1, 2, 124, dtype=np.float32)
    size = TileSize(1, 32, cpt)
    grid = grid_of(size, 1, width)
    machine = Machine(entry_ptx(kernel, "sm_90") + function_ptx(kernel, 0), operand, out)
    machine.block((grid[0] - 1, 0), grid, 32, 32)
    done = width - (grid[0] - 1) * size.tile_width
    assert done == 32 * cpt - 4
    np.testing.assert_array_equal(out[0, -done:], operand[0, -done:] * kernel.tiles[0].values[0])


def test_the_last_pixel_of_the_largest_images() -> None:
    conv = ConvShape(2, 1, 1 << 14, (1 << 14) - 1, 1, (1, 1))
    kernel = kernel_of(random_csr(1, 1, [1]), 1, conv.columns, conv=conv)
    images, out = (np.zeros((2, 1, 1 << 14, (1 << 14) - 1), np.float32) for _ in range(2))
    images[-1, 0, -1, -3:] = (0.5, 0.25, 2.0)
    grid = grid_of(TileSize(1, 32), 1, conv.columns)
    Machine(entry_ptx(kernel, "sm_90") + function_ptx(kernel, 0), images, out).block((grid[0] - 1, 0), grid, 32, 32)
    np.testing.assert_array_equal(out[-1, 0, -1, -3:], images[-1, 0, -1, -3:] * kernel.tiles[0].values[0])
