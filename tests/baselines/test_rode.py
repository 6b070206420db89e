"""rode: every instance of its tables on the host under sanitizers, its decomposition of rows, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.rode.plan import (
    CHUNK,
    LANES,
    SDDMM_BLOCKS,
    SDDMM_RESIDUES,
    SPMM_BLOCKS,
    SPMM_RESIDUES,
    TILE,
    RoDe,
    RoDePlan,
    segments_of,
)
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance

# Block parts of none to several segments that begin at every offset from a 16-byte boundary, and rows that lack one.
MATRIX = random_csr(22, 300, [32, 0, 1, 31, 33, 35, 64, 2, 67, 97, 0, 130, 3, 36, 300, 34, 161, 4, 99, 1, 256, 0])
HOST = find("host-simt")
spmm_target = table_target(SPMM_RESIDUES, SPMM_BLOCKS)
sddmm_target = table_target(SDDMM_RESIDUES, SDDMM_BLOCKS)


@pytest.mark.one_in(3)
@every_instance(SPMM_BLOCKS)
def test_every_spmm_instance(instance: Instance, spmm_target: TableTarget) -> None:
    vector, vectors = (int(instance.values[name]) for name in ("vector", "vectors"))
    # All columns of one tile and a part of the next one's; an odd number of vectors, so that no wider load divides J.
    problem = Problem(Op.SPMM, MATRIX, vector * (LANES * vectors + 3))
    plan = RoDePlan(problem, spmm_target, segment=128, vectors=vectors)
    assert plan.config == {"segment": 128, **instance.values}
    run_checked(plan, problem)


@every_instance(SDDMM_BLOCKS)
def test_every_sddmm_instance(instance: Instance, sddmm_target: TableTarget) -> None:
    vector = int(instance.values["vector"])
    for scaled in (False, True):
        problem = Problem(Op.SDDMM, MATRIX, vector * (2 * LANES + 3), scaled=scaled)
        plan = RoDePlan(problem, sddmm_target, segment=128, vectors=1)
        assert plan.config == {"segment": 128, **instance.values}
        assert plan.deterministic
        run_checked(plan, problem)


def test_a_second_run_starts_anew(spmm_target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 32)
    plan = RoDePlan(problem, spmm_target, segment=TILE, vectors=1)
    (dense,), out = dense_operands(problem), np.empty(problem.out_shape, np.float32)
    for _ in range(2):  # sums of the first run stand where the second adds
        plan.run((dense,), out)
    np.testing.assert_allclose(out, run_checked(plan, problem), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("segment", [32, 64, 512])
@pytest.mark.parametrize("matrix", [MATRIX, random_csr(3, 9, [0, 0, 0])], ids=["uneven", "empty"])
def test_segments_are_whole_tiles_at_boundaries_and_leave_short_residues(matrix: Csr, segment: int) -> None:
    left = matrix.row_lengths.copy()
    expected = []
    for row in range(matrix.num_rows):
        first = int(matrix.indptr[row])
        while first % CHUNK:
            first += 1
        while first + TILE <= matrix.indptr[row + 1]:
            most = (int(matrix.indptr[row + 1]) - first) // TILE * TILE
            expected.append((row, first, min(segment, most), 0))
            first += min(segment, most)
            left[row] -= expected[-1][2]
    assert segments_of(matrix, segment).tolist() == [list(one) for one in expected]
    assert left.max() < TILE + CHUNK - 1


def test_only_rows_of_several_segments_make_a_result_random(spmm_target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 8)
    assert RoDe().build(problem, HOST).deterministic
    assert not RoDePlan(problem, spmm_target, segment=128, vectors=1).deterministic


@pytest.mark.parametrize("op", list(Op))
def test_what_stands_in_rows_without_non_zeros_does_not_reach_a_result(op: Op) -> None:
    indices = np.arange(1, 2 * 40, 2, dtype=np.int32)  # a block part, and a residue that ends within a batch
    matrix = Csr((1, 80), np.array([0, 40], np.int32), indices, np.ones(40, np.float32))
    problem = Problem(op, matrix, 20)
    operands = dense_operands(problem)
    operands[-1][::2] = np.nan
    out = np.empty(problem.out_shape, np.float32)
    RoDe().build(problem, HOST).run(operands, out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem(Op.SDDMM, MATRIX, 32, DType.FLOAT16), "expected float32"),
        (Problem(Op.SPMM, MATRIX, 16 * 65535 + 1), "expected J of at most 1,048,560"),
    ],
)
def test_what_does_not_fit_is_refused(problem: Problem, words: str) -> None:
    reason = RoDe().unsupported(problem, HOST)
    assert reason is not None
    assert words in reason
    assert RoDe().unsupported(Problem(Op.SPMM, MATRIX, 16 * 65535), HOST) is None
