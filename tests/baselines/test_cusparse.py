"""What of the cuSPARSE plans needs no GPU: block formats, the choice of a block, refusals; and the gather kernel."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.cusparse.blocks import PADDING, blocked_ell, count_blocks, smallest
from spmark.impls.cusparse.plan import GATHER, CuSparseBell, CuSparseBsr
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
        (CuSparseBsr(), Problem(Op.SDDMM, matrices()["wide"], 8), "block 16 or 32, J = 8"),
    ],
)
def test_what_the_library_does_not_take_is_refused(implementation: object, problem: Problem, words: str) -> None:
    reason = implementation.unsupported(problem, HOST)
    assert reason is not None
    assert words in reason


def test_the_gather_reads_every_non_zero(request: pytest.FixtureRequest) -> None:
    matrix = matrices()["lengths_of_warps"]
    held = BsrFormat.from_csr(matrix, 16, 16)
    product = np.random.default_rng(0).standard_normal(held.blocks.shape).astype(np.float32)
    instances = list(GATHER.instances())
    target = HostTarget(HOST)
    for instance, kernel in zip(instances, target.load(instances), strict=True):
        dtype = DTYPES[str(instance.values["T"])]
        factors, out = dtype.stored(matrix.values), np.full(matrix.nnz, dtype.nan, dtype.numpy)
        blocks_of_grid = -(-matrix.nnz // instance.threads)
        kernel.launch((blocks_of_grid, 1, 1), (np.int32(matrix.nnz), held.positions, factors, product, out))
        wanted = product.reshape(-1)[held.positions]
        wanted = wanted * dtype.numbers(factors).astype(np.float32) if instance.values["scaled"] else wanted
        np.testing.assert_array_equal(out, dtype.stored(wanted))
