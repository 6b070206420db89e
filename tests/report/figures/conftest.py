"""Records with round times of two implementations, from which figures' numbers follow by hand."""

from __future__ import annotations

import pytest

from spmark.records.schema import Baseline, MatrixKind, ProblemFacts, Status
from spmark.report.analysis.cases import derive
from spmark.report.records import load_records

# Own time and baseline's time in microseconds by label, matrix and J; 0 is a timeout.
TIMES = {
    ("gespmm", "small", 32): (5, 10),
    ("gespmm", "small", 64): (10, 80),
    ("gespmm", "large", 32): (40, 20),
    ("gespmm", "large", 64): (20, 40),
    ("sparsetir", "small", 32): (2, 10),
    ("sparsetir", "small", 64): (0, 80),
    ("sparsetir", "large", 32): (10, 20),
    ("sparsetir", "large", 64): (10, 40),
}
SIZES = {"small": (100, 1_000, MatrixKind.PATTERN), "large": (1_000, 50_000, MatrixKind.TWIN)}


@pytest.fixture
def derived(records, write):
    """Derived columns of the records of `TIMES`."""
    rows = []
    for (label, matrix, width), (own_us, base_us) in TIMES.items():
        num_rows, nnz, kind = SIZES[matrix]
        facts = ProblemFacts(
            num_rows=num_rows, num_cols=num_rows, nnz=nnz, longest_row=99, flops=1_000, compulsory_bytes=4_000_000
        )
        rows.append(
            records.measurement(
                implementation=label, matrix=matrix, width=width, matrix_kind=kind, problem=facts,
                status=Status.OK if own_us else Status.TIMEOUT, samples_us=[float(own_us)] * 8,
                baseline=Baseline(implementation="cusparse_best", config={}, samples_us=[float(base_us)] * 8),
                phases_s={"search": 8e-3, "convert": 2e-3, "compile": 1.0, "upload": 7.0}
                if label == "sparsetir" else {"compile": 0.5},
            )
        )  # fmt: skip
    return derive(load_records([write(rows)]), "cusparse_best")


@pytest.fixture(scope="session")
def round_times() -> dict[tuple[str, str, int], tuple[int, int]]:
    """Give `TIMES`."""
    return TIMES
