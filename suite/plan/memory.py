"""How much memory a case will take, estimated before its matrix is loaded."""

from __future__ import annotations

from spmark.datasets.source import Facts
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import Case, MatrixSpec
from spmark.impls.core.problem import Op
from spmark.impls.core.record import Orientation
from spmark.suite.plan.resume import History


def known_facts(spec: MatrixSpec, history: History) -> Facts | None:
    """Give the sizes of A that an earlier record or the matrix's source states, or None."""
    if problem := history.problems.get(spec.id):
        return Facts(problem.num_rows, problem.num_cols, problem.nnz)
    facts = find_source(spec.source).facts(spec.name)
    if facts is None or spec.orientation is Orientation.A:
        return facts
    return Facts(facts.num_cols, facts.num_rows, facts.nnz)


def memory_bytes(case: Case, facts: Facts) -> int:
    """Give what A in CSR, the dense operands and the result take on the device; a plan's own storage comes on top."""
    indices = 4 * (facts.num_rows + 1 + facts.nnz)
    if case.op is Op.SPMM:
        dense = (facts.num_cols + facts.num_rows) * case.width
    else:
        dense = (facts.num_cols + facts.num_rows) * case.width + facts.nnz
    return indices + case.dtype.itemsize * (facts.nnz + dense)
