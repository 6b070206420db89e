"""What of the cuSPARSE plans needs no GPU: block formats, the choice of a block, refusals; and the gather kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import dense_operands, matrices, random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.cusparse.blocks import PADDING, blocked_ell, count_blocks, smallest
from spmark.impls.cusparse.library import CusparseLibrary
from spmark.impls.cusparse.plan import GATHER, CuSparse, CuSparseBell, CuSparseBsr
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.runtime.device import find
from spmark.impls.runtime.host.ring import HostTarget
from spmark.impls.runtime.template import C_TYPES

HOST: DeviceSpec = find("host-simt")
DTYPES = {name: dtype for dtype, name in C_TYPES.items()}


@pytest.mark.parametrize("block", [2, 16, 32])
@pytest.mark.parametrize("name", list(matrices()))
def test_blocked_ell_holds_the_matrix(name: str, block: int) -> None:
    matrix = matrices()[name]
    held = BsrFormat.from_csr(matrix, block, block)
    assert count_blocks(matrix, block) == held.indices.size
    columns, values = blocked_ell(held)
    num_block_rows, slots = columns.shape
    assert values.shape == (num_block_rows * block, slots * block)
    dense = np.zeros((num_block_rows * block, -(-matrix.num_cols // block) * block), np.float32)
    for row in range(num_block_rows):
        real = columns[row][columns[row] != PADDING]
        assert (np.diff(real) > 0).all(), "real blocks come first, in order"
        for slot, column in enumerate(columns[row].tolist()):
            part = values[row * block : (row + 1) * block, slot * block : (slot + 1) * block]
            if column == PADDING:
                assert not part.any()
            else:
                dense[row * block : (row + 1) * block, column * block : (column + 1) * block] += part
    expected = np.zeros_like(dense)
    expected[matrix.rows_of_entries(), matrix.indices] = matrix.values
    np.testing.assert_array_equal(dense, expected)


def test_the_block_that_stores_least_is_taken_and_of_equals_the_first() -> None:
    scattered = random_csr(64, 64, [1] * 64)
    assert smallest(scattered, (32, 16)).block_shape == (16, 16)
    full = random_csr(64, 64, [64] * 64)
    assert smallest(full, (32, 16)).block_shape == (32, 32)
    assert smallest(full, (16, 32)).block_shape == (16, 16)
    assert smallest(full, (8,)).block_shape == (8, 8)


@pytest.mark.parametrize(
    ("implementation", "problem", "words"),
    [
        (CuSparseBell(), Problem(Op.SPMM, matrices()["wide"], 32), "TF32"),
        (CuSparseBell(), Problem(Op.SPMM, matrices()["no_nonzeros"], 32, DType.FLOAT16), "without non-zeros"),
        (CuSparseBsr(), Problem(Op.SPMM, matrices()["no_nonzeros"], 32), "without non-zeros"),
        (CuSparseBsr(), Problem(Op.SDDMM, matrices()["wide"], 20), "block 16 or 32, J = 20"),
        (CuSparseBsr(block=32), Problem(Op.SDDMM, matrices()["wide"], 16), "block 32, J = 16"),
    ],
)
def test_what_the_library_does_not_take_is_refused(implementation: object, problem: Problem, words: str) -> None:
    reason = implementation.unsupported(problem, HOST)
    assert reason is not None
    assert words in reason


class Recorder(CusparseLibrary):
    """Keeps the arguments of calls in place of making them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, function: str, *arguments: Any) -> None:
        self.calls.append((function, *[getattr(one, "value", one) for one in arguments]))


def test_a_turned_matrix_is_the_same_memory_in_column_major_order() -> None:
    recorder = Recorder()
    descriptors = [recorder.dense((7, 5), DType.FLOAT16, turned) for turned in (False, True)]
    rows_columns_leading_order = [(call[2], call[3], call[4], call[-1]) for call in recorder.calls]
    assert rows_columns_leading_order == [(7, 5, 5, 2), (5, 7, 5, 1)], "cusparseOrder_t: 1 by columns, 2 by rows"
    assert len(descriptors) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("name", ["under_32_rows", "empty_rows", "hub"])
def test_column_major_gives_the_result(name: str, dtype: DType) -> None:
    cupy = pytest.importorskip("cupy")
    problem = Problem(Op.SDDMM, matrices()[name], 32, dtype)
    plan = CuSparse(column_major=True).build(problem, find("cuda"))
    operands = dense_operands(problem)
    out = cupy.full(problem.out_shape, np.nan, dtype.numpy)
    plan.run([cupy.asarray(operand) for operand in operands], out)
    assert reference(problem, operands).max_error(cupy.asnumpy(out)) <= tolerance(problem, plan.half_sums)
    assert plan.config == {"column_major": True, "preprocess": False}


@pytest.mark.parametrize("kind", [CuSparseBell, CuSparseBsr])
def test_an_illegal_block_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="expected block out of 0, 2, 4, 8"):
        kind(block=24)


def test_the_gather_reads_every_non_zero(request: pytest.FixtureRequest) -> None:
    matrix = matrices()["lengths_of_warps"]
    held = BsrFormat.from_csr(matrix, 16, 16)
    product = np.random.default_rng(0).standard_normal(held.blocks.shape).astype(np.float32)
    instances = list(GATHER.instances())
    target = HostTarget(HOST)
    for instance, kernel in zip(instances, target.load(instances), strict=True):
        dtype = DTYPES[str(instance.values["T"])].numpy
        factors = matrix.values.astype(dtype)
        out = np.full(matrix.nnz, np.nan, dtype)
        blocks_of_grid = -(-matrix.nnz // instance.threads)
        kernel.launch((blocks_of_grid, 1, 1), (np.int32(matrix.nnz), held.positions, factors, product, out))
        wanted = product.reshape(-1)[held.positions]
        wanted = wanted * factors.astype(np.float32) if instance.values["scaled"] else wanted
        np.testing.assert_array_equal(out, wanted.astype(dtype))
