"""The moderated t test against closed forms and simulated runs."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest
from scipy import stats

from spmark.report.analysis.compare_inputs import Observed, log_median_error
from spmark.report.analysis.regressions import adjusted, difference
from spmark.report.analysis.run_spread import Trend
from spmark.report.analysis.statistics import FEWEST_SAMPLES

TREND = Trend(floor=0.01, jitter_us=0.0, df=12)


def runs(values, error=0.0, duration_us=100.0):
    return Observed(np.log(values), np.full(len(values), error), np.full(len(values), duration_us))


def test_single_runs_rest_on_the_trend():
    found = difference(runs([100.0]), runs([103.0], error=0.005), [(TREND, True), (TREND, True)])
    assert found.df == 12
    assert found.error == pytest.approx(np.sqrt(0.01**2 + 0.01**2 + 0.005**2))
    assert found.p == pytest.approx(2 * stats.t.sf(log(1.03) / found.error, 12))
    assert found.ratio.value == pytest.approx(1.03)
    assert log(found.ratio.high / 1.03) == pytest.approx(stats.t.ppf(0.975, 12) * found.error)


def test_a_trend_without_prior_weight_leaves_the_pooled_t_test():
    first, second = [100.0, 102.0, 99.0, 101.0], [104.0, 107.0, 105.0, 103.0]
    found = difference(runs(first), runs(second), [(TREND, False), (TREND, False)])
    expected = stats.ttest_ind(np.log(second), np.log(first))
    assert found.df == 6
    assert found.p == pytest.approx(expected.pvalue)


def test_a_learned_trend_is_weighed_with_own_repeats():
    first, second = np.array([100.0, 102.0]), np.array([104.0, 107.0])
    found = difference(runs(first), runs(second), [(TREND, True), (TREND, True)])
    squares = np.log(first).var(ddof=1) + np.log(second).var(ddof=1)
    assert found.df == 14
    assert found.error == pytest.approx(np.sqrt((12 * 0.01**2 + squares) / 14))


def test_what_is_known_of_a_case_is_weighed_with_the_trend():
    trend = TREND.model_copy(update={"known": {"loud": (4.0, 24)}})
    loud, other = (
        difference(runs([100.0]), runs([100.0]), [(trend, True), (trend, True)], case) for case in ("loud", "other")
    )
    assert loud.df == 36
    assert loud.error == pytest.approx(np.sqrt(2 * 0.01**2 * (12 + 24 * 4.0) / 36))
    assert (other.df, other.error) == (12, pytest.approx(np.sqrt(2) * 0.01))


def test_jitter_widens_short_durations():
    trend = Trend(floor=0.001, jitter_us=0.2, df=10)
    short, long = (
        difference(runs([us], duration_us=us), runs([us], duration_us=us), [(trend, True)] * 2) for us in (10.0, 1000.0)
    )
    assert short.error == pytest.approx(np.sqrt(2 * (0.001**2 + 0.02**2)))
    assert long.error < short.error / 10


def test_a_change_at_the_threshold_is_flagged_alone_and_below_it_is_not():
    same = difference(runs([100.0]), runs([100.0]), [(TREND, True)] * 2)
    limit = 1 + same.threshold(50)
    for factor, flagged in ((limit + 1e-3, True), (limit - 1e-3, False)):
        p = difference(runs([100.0]), runs([100.0 * factor]), [(TREND, True)] * 2).p
        assert (adjusted([p] + [1.0] * 49)[0] <= 0.05) is flagged


def test_runs_needed_do_find_a_tenth():
    trend = Trend(floor=0.05, jitter_us=0.0, df=4)
    needed = difference(runs([100.0]), runs([100.0]), [(trend, False)] * 2).runs_needed(10)
    assert 5 < needed < 40
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        first, second = (factor * rng.lognormal(0, 0.05, int(needed)) for factor in (1.0, 1.1))
        found += adjusted([difference(runs(first), runs(second), [(trend, False)] * 2).p] + [1.0] * 9)[0] <= 0.05
    assert 0.8 < found / 200
    noisy = Trend(floor=3.0, jitter_us=0.0, df=4)
    assert difference(runs([1.0]), runs([1.0]), [(noisy, False)] * 2).runs_needed(10) == inf


def test_repeats_that_agree_do_not_undo_the_error_within_a_run():
    found = difference(runs([100.0] * 9, error=0.01), runs([100.0] * 9, error=0.01), [(TREND, False)] * 2)
    assert found.error >= 0.01 * np.sqrt(2 / 9)


def test_adjusted_by_hand():
    np.testing.assert_allclose(adjusted([0.01, 0.04, 0.03, 0.5]), [0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert adjusted([]) == []


@pytest.mark.parametrize("count", [9, 40, 41])
def test_the_error_of_a_median_is_the_bootstraps(count):
    rng = np.random.default_rng(count)
    samples = rng.lognormal(3, 0.1, count)
    drawn = np.median(np.log(samples)[rng.integers(count, size=(40_000, count))], axis=1)
    # For an even count the closed form has one order statistic where the median averages two.
    assert log_median_error(samples) == pytest.approx(drawn.std(), rel=0.02 if count % 2 else 0.12)


def test_few_samples_have_no_error():
    assert np.isnan(log_median_error(np.ones(FEWEST_SAMPLES - 1)))
    assert log_median_error(np.ones(FEWEST_SAMPLES)) == 0.0
