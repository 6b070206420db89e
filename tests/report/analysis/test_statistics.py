"""Derived numbers against SciPy, closed forms and their own promise: how often an interval holds the truth."""

from __future__ import annotations

from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spmark.report.analysis.statistics import (
    FEWEST_SAMPLES,
    Interval,
    break_even,
    floor_us,
    geometric_mean,
    median_interval,
    median_rank,
    ratio_interval,
)
from spmark.report.analysis.transfers import over_seeds


@pytest.mark.parametrize("count", [1, 5, 6, 7, 20, 99, 1000])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_median_rank_is_the_largest_that_keeps_the_confidence(count, confidence):
    rank = median_rank(count, confidence)
    binomial = stats.binom(count, 0.5)
    assert 1 - 2 * binomial.cdf(rank - 1) >= confidence or rank == 0
    assert 1 - 2 * binomial.cdf(rank) < confidence


def test_median_interval_agrees_with_scipy():
    samples = np.random.default_rng(0).lognormal(3, 0.5, 51)
    ours = median_interval(samples)
    theirs = stats.quantile_test(samples, p=0.5).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    assert ours.value == np.median(samples)


def test_an_interval_needs_enough_samples():
    assert median_rank(FEWEST_SAMPLES) == 1
    assert median_rank(FEWEST_SAMPLES - 1) == 0
    few = median_interval([3.0, 1.0, 2.0])
    assert few.value == 2.0
    assert isnan(few.low)
    assert isnan(few.high)
    assert isnan(median_interval([]).value)
    assert isnan(ratio_interval([1.0, 2.0], [2.0, 4.0]).low)
    assert ratio_interval([1.0, 2.0], [2.0, 4.0]).value == 0.5
    assert isnan(ratio_interval([], [1.0]).value)
    assert isnan(geometric_mean([2.0]).low)
    assert isnan(geometric_mean([]).value)


def test_half_width_is_relative():
    assert Interval(10, 9, 12).half_width == pytest.approx(0.15)
    assert isnan(Interval(0, 0, 0).half_width)


def test_median_interval_covers_the_median():
    rng = np.random.default_rng(1)
    intervals = [median_interval(draw) for draw in rng.exponential(1, (2000, 31))]
    covered = np.mean([i.low <= np.log(2) <= i.high for i in intervals])
    assert 0.94 < covered < 0.985


@pytest.mark.parametrize(("above", "below"), [(40, 40), (40, 31)])
def test_ratio_interval_covers_the_ratio_of_medians(above, below):
    rng = np.random.default_rng(2)
    hits = []
    for _ in range(250):
        slow, fast = 3 * rng.lognormal(0, 0.1, above), 2 * rng.lognormal(0, 0.1, below)
        interval = ratio_interval(slow, fast)
        hits.append(interval.low <= 1.5 <= interval.high)
    assert 0.91 < np.mean(hits) <= 0.995


def test_pairs_keep_what_both_sides_share():
    rng = np.random.default_rng(3)
    drift = np.linspace(1, 2, 101)
    base, own = 3 * drift * rng.lognormal(0, 0.01, 101), 2 * drift * rng.lognormal(0, 0.01, 101)
    paired, alone = ratio_interval(base, own), ratio_interval(base, own[:-1])
    assert paired.low < 1.5 < paired.high
    assert paired.half_width < alone.half_width / 3


@pytest.mark.parametrize("size", [20, 21])
def test_drawing_on_its_own_is_the_bootstrap_of_medians(size):
    rng = np.random.default_rng(4)
    base, own = rng.lognormal(1, 0.3, size), rng.lognormal(0, 0.3, 60)
    interval = ratio_interval(base, own)
    draws = [np.median(rng.choice(side, (4000, side.size)), axis=1) for side in (base, own)]
    low, high = np.quantile(draws[0] / draws[1], [0.025, 0.975])
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=0.06)


def test_resampling_is_repeatable():
    samples = np.random.default_rng(5).lognormal(0, 1, (2, 30))
    assert ratio_interval(samples[0], samples[1]) == ratio_interval(samples[0], samples[1])
    assert geometric_mean(samples[0]) == geometric_mean(samples[0])


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=30))
def test_geometric_mean_is_scipys(ratios):
    assert geometric_mean(ratios).value == pytest.approx(stats.gmean(ratios))


@pytest.mark.parametrize("sizes", [(4, 4), (1, 3), (2, 2, 2), (5, 2, 2), (1,) * 4, (3, 2, 2, 2, 2), (1,) * 6, (4,) * 7])
def test_intervals_of_few_clusters_cover_the_truth(sizes):
    """Clusters that share a normal error: of 2,000 means, 95 % less or more four standard errors of that share."""
    rng, clusters = np.random.default_rng(6), np.repeat(np.arange(len(sizes)), sizes)
    shared = rng.normal(0.3, 0.4, (2000, len(sizes)))
    intervals = [geometric_mean(ratios, clusters) for ratios in np.exp(shared[:, clusters])]
    covered = np.mean([i.low <= np.exp(0.3) <= i.high for i in intervals])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("count", [8, 25])
def test_geometric_mean_covers_the_truth_with_more_cases(count):
    rng = np.random.default_rng(6)
    intervals = [geometric_mean(np.exp(rng.normal(0.3, 0.4, count))) for _ in range(250)]
    covered = np.mean([i.low <= np.exp(0.3) <= i.high for i in intervals])
    assert 0.91 < covered <= 0.99


def test_clusters_are_drawn_whole():
    rng = np.random.default_rng(7)
    matrices = np.repeat(np.arange(12), 5)
    ratios = np.exp(np.repeat(rng.normal(0, 0.5, 12), 5) + rng.normal(0, 0.01, 60))
    whole, loose = geometric_mean(ratios, list(matrices)), geometric_mean(ratios)
    assert whole.value == pytest.approx(loose.value)
    assert whole.half_width > 1.5 * loose.half_width


@given(st.floats(0, 100), st.floats(1, 1e4), st.floats(0, 100), st.floats(1, 1e4))
def test_break_even_is_where_the_totals_cross(build_s, run_us, base_build_s, base_run_us):
    runs = break_even(build_s, run_us, base_build_s, base_run_us)

    def ahead(count):
        return build_s + count * run_us * 1e-6 - (base_build_s + count * base_run_us * 1e-6)

    if runs == inf:
        assert run_us > base_run_us or (run_us == base_run_us and build_s > base_build_s)
        return
    slack = 1e-9 * (1 + build_s + base_build_s + runs * run_us * 1e-6)
    assert ahead(runs) <= slack
    assert runs == 0 or ahead(runs - 1) > -slack


def test_break_even_by_hand():
    assert break_even(3.0, 100.0, 1.0, 150.0) == 40_000
    assert break_even(1.0, 100.0, 1.0, 100.0) == 0
    assert break_even(0.0, 101.0, 1.0, 100.0) == inf
    assert isnan(break_even(1.0, nan, 0.0, 1.0))


def test_floor_is_amount_over_rate():
    assert floor_us(4e9, 4e12) == pytest.approx(1000)
    assert isnan(floor_us(4e9, 0))


@pytest.mark.parametrize(
    ("count", "tail", "rank"),
    [(6, 1 / 64, 1), (5, (1 + 5) / 32, 2), (8, (1 + 8 + 28) / 256, 3), (9, (1 + 9 + 36) / 512, 3)],
)
def test_a_tail_of_just_the_error_rate_is_allowed(count, tail, rank):
    assert stats.binom(count, 0.5).cdf(rank - 1) == pytest.approx(tail, rel=1e-12)
    assert median_rank(count, 1 - 2 * tail) == rank
    assert median_rank(count, 1 - 1.99 * tail) == rank - 1


@pytest.mark.parametrize("size", [6, 7])
def test_ratio_interval_is_that_of_every_way_to_draw(size):
    """Of six samples a median lies between the middle two: against all six to the power of six draws."""
    above, below = np.full(size, 3.0), 2.0 ** np.arange(size)
    if size == 6:
        draws = below[np.indices((size,) * size).reshape(size, -1).T]
    else:
        draws = np.random.default_rng(8).choice(below, (200_000, size))
    ratios = 3.0 / np.median(draws, axis=1)
    (lowest, low), (high, highest) = np.quantile(ratios, [[0.015, 0.035], [0.965, 0.985]])
    interval = ratio_interval(above, below)
    assert lowest <= interval.low <= low
    assert high <= interval.high <= highest
    assert interval.value == 3.0 / np.median(below)


def test_few_cases_have_students_interval():
    logs = np.log([8.0, 1.0, 4.0, 2.0])
    ends = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    interval = geometric_mean(np.exp(logs))
    assert (interval.value, interval.low, interval.high) == pytest.approx((2 * 2**0.5, *np.exp(ends)))


@pytest.mark.parametrize("many", [FEWEST_SAMPLES, 40])
def test_a_ratio_needs_enough_samples_on_both_sides(many):
    enough, few = np.linspace(1.0, 2.0, many), np.linspace(1.0, 2.0, FEWEST_SAMPLES - 1)
    for interval in (ratio_interval(enough, few), ratio_interval(few, enough)):
        assert interval.value == 1.0
        assert isnan(interval.low)
        assert isnan(interval.high)
    assert not isnan(ratio_interval(enough, enough[:FEWEST_SAMPLES]).low)


def test_large_clusters_weigh_by_their_cases():
    """Six clusters of nine cases near 1 and six of one case near e: the mean of the clusters would be far off."""
    rng = np.random.default_rng(9)
    clusters = [number for number in range(6) for _ in range(9)] + list(range(6, 12))
    logs = np.array([0.0] * 54 + [1.0] * 6) + rng.normal(0, 0.01, 60)
    interval = geometric_mean(np.exp(logs), clusters)
    assert interval.value == pytest.approx(np.exp(0.1), rel=0.01)
    assert interval.low < interval.value < interval.high
    assert interval.high < np.exp(0.5)


def test_over_seeds_is_students_interval():
    values = [1.1, 1.3, 1.25, 0.9]
    found = over_seeds([*values, float("nan")])
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    ratio = over_seeds(values, ratios=True)
    logs = np.log(values)
    low, high = np.exp(stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs)))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((stats.gmean(values), low, high))


def test_one_seed_has_no_interval_and_none_has_no_mean():
    assert over_seeds([2.0]).value == 2.0
    assert np.isnan([over_seeds([2.0]).low, over_seeds([2.0], ratios=True).high, over_seeds([]).value]).all()
