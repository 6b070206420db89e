"""RGMS over pieces: every instance on the host."""

from __future__ import annotations

from typing import Any

import pytest
from relational import drawn, relational_matrices, run_relational
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.formats.relational_pieces import RelationalPieces
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_pieces import PIECES, RGMS_PIECES, RelationalPiecesPlan
from spmark.impls.runtime.template import Instance

MATRIX = drawn(200, 90, [220, 0, 7, 1, 40, 90], seed=4, hub=60)
target = table_target(RGMS_PIECES, SUM_PIECES)


def run(matrix: RelationalCsr, widths: tuple[int, int], dtype: DType, target: TableTarget, **schedule: Any) -> Any:
    problem = RelationalProblem(matrix, *widths, dtype)
    held = RelationalPieces.of(matrix, PIECES, 16)
    plan = RelationalPiecesPlan(problem, target, held, {}, **schedule)
    assert plan.deterministic >= schedule["ordered"]
    return run_relational(plan, problem)


@every_instance(RGMS_PIECES)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    """Pieces of one edge and of many, tiles that are filled and not; widths that fill nothing."""
    values = instance.values
    widths, schedule = (int(values["depth"]) - 8, 40), {name: values[name] for name in ("tile", "ordered")}
    run(MATRIX, widths, DTYPES[str(values["T"])], target, **schedule)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", relational_matrices())
def test_tiny_matrices(name: str, ordered: bool, target: TableTarget) -> None:
    run(relational_matrices()[name], (16, 32), DType.FLOAT16, target, tile=32, ordered=ordered)
