"""The kernels behind the check of a result: the values that the host draws, and rows of a result, in the host ring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers
from sampling import ARCHES

from spmark.impls.core.errors import CompileError
from spmark.impls.core.operators import RandomOperand
from spmark.impls.core.problem import DType
from spmark.impls.runtime.compile import compile_many
from spmark.impls.runtime.host.ring import compile_host, launch_host
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.runtime.timing import DRAW, KERNELS, TAKE

SOURCE = KERNELS / DRAW[0]
EXPRESSIONS = [kernel[1].format(element) for kernel in (DRAW, TAKE) for element in C_TYPES.values()]
BLOCKS, BLOCK = (3, 1, 1), (256, 1, 1)


@needs_compilers
def test_they_compile_for_every_target() -> None:
    kernels = [(SOURCE, expression, arch) for expression in EXPRESSIONS for arch in ARCHES]
    for binary in compile_many(kernels, 1):
        assert not isinstance(binary, CompileError), binary
        assert binary.spill_bytes == 0


@pytest.fixture(scope="module")
def executable() -> Path:
    return compile_host(SOURCE, EXPRESSIONS)


@pytest.mark.parametrize("dtype", list(DType))
def test_they_draw_the_values_of_the_host_and_take_rows(executable: Path, dtype: DType) -> None:
    operand = RandomOperand((37, 41), dtype, seed=2**40 + 3, stream=2)
    here, there = np.empty(operand.shape, dtype.numpy), np.empty(operand.shape, dtype.numpy)
    operand.fill(here)
    draw, take = (kernel[1].format(C_TYPES[dtype]) for kernel in (DRAW, TAKE))
    launch_host(executable, draw, BLOCKS, BLOCK, 0, [np.int64(there.size), np.uint64(operand.key), there])
    assert there.tobytes() == here.tobytes()
    rows = np.array([36, 0, 7, 7], np.int64)
    found = np.empty((rows.size, 41), dtype.numpy)
    launch_host(executable, take, BLOCKS, BLOCK, 0, [np.int64(rows.size), np.int64(41), rows, here, found])
    assert found.tobytes() == here[rows].tobytes()
