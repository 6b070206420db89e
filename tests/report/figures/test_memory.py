"""Memory over the baseline's, by hand."""

from __future__ import annotations

import pytest

from spmark.records.schema import ProblemFacts
from spmark.report.analysis.cases import derive
from spmark.report.figures.costs import memory_per_matrix, memory_ratios
from spmark.report.records import load_records

# (matrix, width): bytes of the baseline and of stile.
BYTES = {("a", 32): (100, 200), ("a", 64): (100, 50), ("b", 32): (1000, 1500), ("b", 64): (0, 1500)}


def derived_of(records, write, extra=0):
    facts = ProblemFacts(num_rows=9, num_cols=9, nnz=20, longest_row=9, flops=10, compulsory_bytes=10)
    sizes = BYTES | {(f"pool_x{i}@0.9", 32): (10, 10 * (1 + i)) for i in range(extra)}
    names = list(dict.fromkeys(matrix for matrix, _ in sizes))
    rows = [
        records.measurement(
            implementation=label, matrix=matrix, width=width, device_bytes=held_bytes, samples_us=[5.0] * 8,
            matrix_hash=f"{names.index(matrix):064x}", problem=facts,
        )
        for (matrix, width), both in sizes.items()
        for label, held_bytes in zip(("cusparse_best", "stile"), both, strict=True)
    ]  # fmt: skip
    return derive(load_records([write(rows)]), "cusparse_best")


def test_a_baseline_that_says_nothing_gives_no_ratio(records, write):
    rows = memory_ratios(derived_of(records, write))
    assert rows["memory_ratio"].tolist() == [2.0, 0.5, 1.5]
    assert set(rows["label"]) == {"stile"}


def test_bars_are_geometric_means_over_widths(records, write):
    data = memory_per_matrix(derived_of(records, write), "cusparse_best").data.set_index("group")
    assert data.loc["ogb/a", ["memory_ratio", "least", "greatest", "cases"]].tolist() == [1.0, 0.5, 2.0, 2]
    assert data.loc["ogb/b", "memory_ratio"] == pytest.approx(1.5)
