"""RGMS over rows with like sets of relations: every instance on the host."""

from __future__ import annotations

from typing import Any

import pytest
from relational import drawn, relational_matrices, run_relational
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.formats.relational_sets import RelationalSets
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_sets import RGMS_SETS, RelationalSetsPlan
from spmark.impls.runtime.template import Instance

MATRIX = drawn(200, 90, [120, 0, 7, 1, 40, 90], seed=4, hub=60)
target = table_target(RGMS_SETS, SUM_PIECES)


def run(
    matrix: RelationalCsr,
    widths: tuple[int, int],
    target: TableTarget,
    piece: int,
    tile: int,
    warps: int = 4,
    apart: bool = False,
    together: bool = False,
) -> Any:
    problem = RelationalProblem(matrix, *widths, DType.FLOAT16)
    held = RelationalSets.of(matrix, piece, warps, 3, apart=apart)
    plan = RelationalSetsPlan(problem, target, held, {"piece": piece}, tile=tile, together=together)
    assert plan.deterministic
    return run_relational(plan, problem)


@every_instance(RGMS_SETS)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    """Rows alone in a tile and rows in pieces; widths that fill nothing; several tiles for a thread block."""
    values = instance.values
    widths = int(values["depth"]) - 8, 40
    warps, together = int(values["threads"]) // 32, bool(values["together"])
    run(MATRIX, widths, target, 16, int(values["tile"]), warps, together=together)


@pytest.mark.parametrize("piece", [16, 64])
@pytest.mark.parametrize("name", relational_matrices())
def test_tiny_matrices(name: str, piece: int, target: TableTarget) -> None:
    run(relational_matrices()[name], (16, 32), target, piece, 32)


def test_relations_apart(target: TableTarget) -> None:
    """Many pieces of a row are added up by a thread block whose threads share them."""
    run(MATRIX, (32, 32), target, 16, 32, apart=True)
