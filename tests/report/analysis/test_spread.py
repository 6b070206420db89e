"""Spread over repeated runs, against its closed form."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from spmark.impls.core.errors import RecordError
from spmark.report.analysis.spread import spread, spread_by_case
from spmark.report.analysis.spreadmodel import fit_spread

FACTORS = (1.0, 1.02, 0.97)


@pytest.fixture
def runs(records, tmp_path):
    """Give three runs of one sweep, each slower or faster as a whole by a known factor."""
    rows = records.sweep(widths=(32, 64), implementations=("cusparse_best", "gespmm"))
    paths = []
    for number, factor in enumerate(FACTORS):
        slower = [
            row.model_copy(
                update={
                    "samples_us": [factor * sample for sample in row.samples_us],
                    "started_at": row.started_at + timedelta(hours=number),
                }
            )
            for row in rows
        ]
        paths.append(records.write_records(tmp_path / f"run{number}", slower))
    return paths


def test_deviation_and_range_of_known_factors(runs):
    cases = spread_by_case(runs)
    assert set(cases["runs"]) == {3}
    mean = np.mean(FACTORS)
    np.testing.assert_allclose(cases["deviation"], np.std(FACTORS, ddof=1) / mean)
    np.testing.assert_allclose(cases["range"], np.ptp(FACTORS) / mean)


def test_the_ratio_spreads_with_the_case_where_the_baseline_stood_still(runs):
    ratios = 1 / np.array(FACTORS)
    expected = np.std(ratios, ddof=1) / ratios.mean()
    beside = spread_by_case(runs).dropna(subset=["ratio_deviation"])
    assert len(beside) > 0
    np.testing.assert_allclose(beside["ratio_deviation"], expected)


def test_the_summary_covers_every_case(runs):
    (summary,) = spread(runs)
    assert summary.cases == len(spread_by_case(runs))
    assert summary.runs == 3
    assert summary.typical == pytest.approx(summary.worst)


def test_one_run_has_no_spread(runs):
    with pytest.raises(RecordError, match="at least twice"):
        spread(runs[:1])


def test_two_matrices_of_one_name_are_no_two_runs(records, tmp_path):
    rows = [records.measurement(samples_us=[1.0], matrix_hash=pattern * 64) for pattern in "ab"]
    paths = [records.write_records(tmp_path / row.matrix_hash[:1], [row]) for row in rows]
    with pytest.raises(RecordError, match="at least twice"):
        spread(paths)
    with pytest.raises(RecordError, match="found 0"):
        fit_spread(paths)
