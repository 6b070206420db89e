from __future__ import annotations

from pathlib import Path

import pytest
from suite_fakes import case

from spmark.datasets.source import Facts
from spmark.impls.core.enums import RelationalOp
from spmark.impls.core.problem import DType, Op
from spmark.records.schema import MatrixRef, Orientation, ProblemFacts
from spmark.suite.plan.plan import Plan
from spmark.suite.plan.resume import History


def sizes(matrix: MatrixRef, **fields) -> int | None:
    """Give the bytes that a case takes, from what a history and its source know."""
    spec = case(width=2).model_copy(update={"matrix": matrix, **fields})
    known = ProblemFacts(num_rows=3, num_cols=5, nnz=7, longest_row=2, flops=8, compulsory_bytes=9)
    return Plan((), Path(), History(problems={"rmat/recorded": known})).memory_bytes(spec)


def test_memory_is_csr_operands_and_result() -> None:
    matrix = MatrixRef(source="rmat", name="recorded")
    assert sizes(matrix) == 4 * 4 + 4 * 7 + 4 * 7 + 4 * (5 * 2 + 3 * 2)
    assert sizes(matrix, op=Op.SDDMM, dtype=DType.FLOAT16) == 4 * 4 + 4 * 7 + 2 * 7 + 2 * (3 * 2 + 5 * 2 + 7)


def test_memory_of_rgms_is_that_of_its_relations() -> None:
    nodes, relations, edges = 8285, 45, 29043
    matrix = MatrixRef(source="hetero", name="aifb")
    dense = nodes * 3 + relations * 3 * 2 + nodes * 2
    assert sizes(matrix, op=RelationalOp.RGMS, width_in=3) == 4 * (nodes + 1 + edges) + 4 * (edges + dense)


def test_sizes_that_no_record_has_are_those_that_the_source_states() -> None:
    nodes, edges = 325_729, 1_497_134
    stated = sizes(MatrixRef(source="snap", name="web-NotreDame"))
    assert stated == 4 * (nodes + 1 + edges) + 4 * (edges + 4 * nodes)
    assert sizes(MatrixRef(source="rmat", name="unknown")) is None


@pytest.mark.parametrize(("orientation", "rows"), [(Orientation.A, 2), (Orientation.TRANSPOSED, 3)])
def test_a_transpose_swaps_rows_and_columns(monkeypatch, orientation, rows) -> None:
    class Source:
        def likely(self, name):
            return Facts(2, 3, 4)

    monkeypatch.setattr("spmark.suite.plan.plan.find_source", lambda name: Source())
    matrix = MatrixRef(source="npz", name="x", orientation=orientation)
    assert sizes(matrix) == 4 * (rows + 1 + 4) + 4 * (4 + (2 + 3) * 2)
