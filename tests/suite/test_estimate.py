from __future__ import annotations

from dataclasses import replace

from suite_fakes import case

from spmark.datasets.source import Facts
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.record import Orientation, ProblemFacts
from spmark.suite.plan.memory import known_facts, memory_bytes
from spmark.suite.plan.resume import History


def test_memory_is_csr_operands_and_result():
    facts = Facts(num_rows=3, num_cols=5, nnz=7)
    spmm = case(width=2)
    assert memory_bytes(spmm, facts) == 4 * 4 + 4 * 7 + 4 * 7 + 4 * (5 * 2 + 3 * 2)
    sddmm = replace(spmm, op=Op.SDDMM, dtype=DType.FLOAT16)
    assert memory_bytes(sddmm, facts) == 4 * 4 + 4 * 7 + 2 * 7 + 2 * (3 * 2 + 5 * 2 + 7)


def test_sizes_come_from_records_then_from_the_source():
    spec = MatrixSpec(source="snap", name="web-NotreDame")
    stated = known_facts(spec, History())
    assert stated is not None
    assert stated.nnz == 1_497_134
    recorded = ProblemFacts(num_rows=2, num_cols=3, nnz=4, longest_row=2, flops=8, compulsory_bytes=9)
    assert known_facts(spec, History(problems={spec.id: recorded})) == Facts(2, 3, 4)
    assert known_facts(MatrixSpec(source="rmat", name="x"), History()) is None


def test_a_transpose_swaps_rows_and_columns(monkeypatch):
    class Source:
        def facts(self, name):
            return Facts(2, 3, 4)

    monkeypatch.setattr("spmark.suite.plan.memory.find_source", lambda name: Source())
    spec = MatrixSpec(source="npz", name="x", orientation=Orientation.TRANSPOSED)
    assert known_facts(spec, History()) == Facts(3, 2, 4)
