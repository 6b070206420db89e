"""SDDMM with rows of X in registers: every instance on the host, awkward matrices, bits, and the tiles of a width."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import AWKWARD, DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.kernels.sddmm import SDDMM_CSR, SDDMM_RUNS, SddmmPlan, run_tiles, sddmm_kernel
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import Instance

# Rows that begin within a batch, with it and long after it; none of 2, 4 and 8 divides the number of non-zeros.
MATRIX = random_csr(23, 97, [0, 1, 2, 3, 97, 7, 0, 33, 64, 5] * 2 + [1, 0, 10])
SCHEDULE = ("vector", "vectors", "lanes", "batch", "parts", "early")
target = table_target(SDDMM_RUNS)


def run_with(problem: Problem, target: TableTarget, run: int, **schedule: Any) -> np.ndarray:
    return run_checked(SddmmPlan(problem, target, {}, **schedule, run=run), problem)


@pytest.mark.one_in(4)
@every_instance(SDDMM_RUNS)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    values = instance.values
    schedule: dict[str, Any] = {name: values[name] for name in SCHEDULE}
    # Where the tile does not divide J, the last lanes have nothing to do.
    loads = schedule["vectors"] * schedule["lanes"] * schedule["parts"] - (0 if values["whole"] else 3)
    for scaled, run in ((False, schedule["batch"]), (True, 3 * schedule["batch"])):
        problem = Problem(Op.SDDMM, MATRIX, schedule["vector"] * loads, DTYPES[str(values["T"])], scaled)
        run_with(problem, target, run, **schedule)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_matrices(name: str, target: TableTarget) -> None:
    matrix = AWKWARD[name]
    tile = {"vectors": 1, "lanes": 8, "batch": 8, "parts": 1, "early": False}
    for vector, dtype, scaled, run in ((4, DType.FLOAT32, True, 32), (8, DType.FLOAT16, False, 8)):
        problem = Problem(Op.SDDMM, matrix, 8 * vector, dtype, scaled)
        plan = SddmmPlan(problem, target, {}, **{**tile, "vector": vector, "run": run})
        run_checked(plan, problem)
        # The array of rows belongs to the plan, and its making to the build.
        factors = matrix.nnz * dtype.itemsize if scaled else 0
        assert plan.device_bytes == 8 * matrix.nnz + factors
        assert "convert" in plan.phases_s
        assert plan.config == {**tile, "vector": vector, "run": run}


@pytest.mark.parametrize(("dtype", "vector"), [(DType.FLOAT32, 4), (DType.FLOAT16, 8)])
def test_the_bits_depend_on_lanes_alone(dtype: DType, vector: int, target: TableTarget) -> None:
    wide = [(4, 1, 2, False), (2, 2, 4, False), *([(4, 1, 4, False)] if dtype is DType.FLOAT32 else [])]
    for loads, tiles in ((4, wide), (1, [(1, 1, 4, False), (1, 1, 4, True)])):
        problem = Problem(Op.SDDMM, MATRIX, loads * 16 * vector, dtype, scaled=True)
        one = {"vector": vector, "lanes": 16}
        expected = run_checked(SddmmPlan(problem, target, {}, **one, batch=4), problem)
        for vectors, parts, batch, early in tiles:
            for run in (2, 5, 12, 64):
                tile = {**one, "vectors": vectors, "parts": parts, "batch": batch, "early": early}
                result = run_with(problem, target, run, **tile)
                np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def test_what_stands_past_j_does_not_reach_a_result(target: TableTarget) -> None:
    """Lanes past J hold zeros and read nothing: an infinity in the next row meets no factor of this one."""
    problem = Problem(Op.SDDMM, random_csr(2, 3, [2, 1]), 20)
    left, right = dense_operands(problem)
    left[1], right[2] = np.inf, np.inf
    out = np.empty(problem.out_shape, np.float32)
    tile = {"vector": 4, "vectors": 1, "lanes": 8, "batch": 4, "parts": 1, "early": False}
    SddmmPlan(problem, target, {}, **tile, run=4).run((left, right), out)
    rows, columns = problem.matrix.rows_of_entries(), problem.matrix.indices
    finite = (rows == 0) & (columns < 2)
    assert finite.any()
    assert np.isfinite(out[finite]).all()
    assert not np.isfinite(out[~finite]).any()


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [1, 3, 8, 16, 20, 32, 33, 64, 100, 128, 130, 256, 500, 512, 1000, 1024, 4096])
def test_tiles_hold_a_row_and_have_a_kernel(width: int, dtype: DType) -> None:
    problem = Problem(Op.SDDMM, MATRIX, width, dtype)
    for tile in run_tiles(width, dtype):
        loads = tile["vectors"] * tile["parts"]
        assert width % tile["vector"] == 0
        assert tile["vector"] * tile["lanes"] * loads >= width
        assert tile["vector"] * tile["lanes"] * loads < 4 * width, "most lanes have something to do"
        sddmm_kernel(problem, {**tile, "run": 8})


def test_the_schedule_says_which_kernel(target: TableTarget) -> None:
    problem = Problem(Op.SDDMM, MATRIX, 32)
    csr = {"vector": 4, "lanes": 8, "batch": 4}
    runs = {**csr, "vectors": 1, "parts": 1, "early": True, "run": 8}
    for schedule, template in ((csr, SDDMM_CSR), (runs, SDDMM_RUNS)):
        assert sddmm_kernel(problem, schedule).template is template
        assert SddmmPlan(problem, target, {}, **schedule).config == schedule


@pytest.mark.parametrize(
    ("width", "changed", "words"),
    [
        (36, {}, "J = 36"),
        (30, {}, "divide J = 30"),
        (32, {"run": 0}, "run of at least 1"),
        (32, {"batch": 16}, "batch"),
    ],
)
def test_what_does_not_fit_is_refused(width: int, changed: dict[str, int], words: str, target: TableTarget) -> None:
    schedule = {"vector": 4, "vectors": 1, "lanes": 8, "batch": 4, "parts": 1, "early": False}
    with pytest.raises(BuildError, match=words):
        SddmmPlan(Problem(Op.SDDMM, MATRIX, width), target, {}, **{**schedule, "run": 8, **changed})


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [32, 100, 128, 512])
def test_every_tile_on_a_gpu(width: int, dtype: DType) -> None:
    """A race passes over what is wrong, so that only this test would tell of it."""
    cupy = pytest.importorskip("cupy")
    problem = Problem(Op.SDDMM, MATRIX, width, dtype, scaled=True)
    operands = dense_operands(problem)
    given = [cupy.asarray(operand) for operand in operands]
    cuda = open_target(find("cuda"))
    for tile, turns in product(run_tiles(width, dtype), (1, 3)):
        out = cupy.full(problem.out_shape, dtype.nan, dtype.numpy)
        SddmmPlan(problem, cuda, {}, **tile, run=turns * tile["batch"]).run(given, out)
        assert reference(problem, operands).max_error(cupy.asnumpy(out)) <= tolerance(problem), tile
