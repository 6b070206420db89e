"""The fit of algorithm 1, and how well predictions agree with measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.stile.calibration import Calibration
from spmark.report.analysis.tiles import read_agreement
from spmark.studies.stile.fitting import Agreement, Fitted, Measured, fit_line, tiles_name

ROOT = Path(__file__).parents[3]


def test_a_fit_finds_the_line_that_samples_lie_on() -> None:
    rng = np.random.default_rng(0)
    r = rng.uniform(1e3, 1e5, 50)
    ms = 3e-8 * r + 4e-4
    r_atomic = r * rng.uniform(1, 1.5, 50)
    line = fit_line(r, ms, r_atomic, ms * (5 * r_atomic / r - 3), 50.0)
    assert (line.a, line.b, line.c, line.d) == pytest.approx((3e-8, 4e-4, 5, -3))
    assert (fit_line(r, ms, [], [], 50.0).c, fit_line(r, ms, [], [], 50.0).d) == (0, 1)
    through_zero = fit_line([1.0, 2.0], [0.5, 3.0], [], [], 50.0)
    assert (through_zero.a, through_zero.b) == (pytest.approx(6.5 / 5), 0)


def test_agreement() -> None:
    rng = np.random.default_rng(1)
    x = rng.random(30)
    y = x + rng.normal(0, 0.1, 30)
    found = Agreement.of(x, y)
    assert found.pearson == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((x - y) ** 2)))
    assert np.isnan(Agreement.of(np.ones(2), np.array([1.0, 2.0])).pearson)


def test_the_published_tiles_are_those_of_the_shipped_calibration() -> None:
    spec = DeviceSpec.load(ROOT / "impls" / "stile" / "calibrations" / "nvidia-h200.json")
    for one in read_agreement(ROOT / "report" / "reference" / "tiles" / "nvidia-h200.json"):
        calibration = Calibration.of(spec, one.operator, one.dtype)
        table = spec.tables[tiles_name(one.operator, one.dtype)]
        rows = np.reshape(table, (-1, 6)).tolist()
        measured = Measured.of(((a, b, c, d), *times) for a, b, c, d, *times in rows)
        pairs = np.array(one.held_out)
        agreement = Agreement.of(*pairs.T)
        assert Fitted(calibration, agreement, None, measured).held_out_us == list(one.held_out)
        assert (len(pairs), agreement.pearson) == (one.count, pytest.approx(one.pearson, abs=1e-4))
        assert agreement.rmse == pytest.approx(one.rmse_us, abs=1e-4)
