"""Stopping, intervals and interleaving, on a stopwatch whose times are made up."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from spmark.impls.runtime.timing import (
    HostStopwatch,
    Run,
    StepStopwatch,
    Stopping,
    Stopwatch,
    half_width,
    take_samples,
)
from spmark.records.schema import Flush


class Scripted(Stopwatch):
    """Gives normal times of a chosen spread, and remembers how it was asked."""

    def __init__(self, medians: Sequence[float], spread: float, seconds: float = 0.0) -> None:
        self.medians, self.spread, self.seconds = medians, spread, seconds
        self.random = np.random.default_rng(5)
        self.rounds: list[int] = []
        self.cold: list[bool] = []

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> np.ndarray:
        self.rounds.append(rounds)
        self.cold.append(cold)
        time.sleep(self.seconds * rounds)
        scale = 1 + self.spread * self.random.standard_normal((len(runs), rounds))
        return np.array(self.medians)[:, None] * scale

    def state(self) -> tuple[float, list[str]]:
        return 1500.0, ["power cap"]


def nothing() -> None:
    pass


def test_quiet_runs_stop_early_and_noisy_ones_go_on() -> None:
    rule = Stopping(half_width=0.01, max_seconds=60)
    quiet = take_samples(Scripted([10, 20], 0.001), [nothing, nothing], rule)
    noisy = take_samples(Scripted([10, 20], 0.05), [nothing, nothing], rule)
    assert len(quiet.times_us[0]) == rule.min_samples
    assert rule.min_samples < len(noisy.times_us[0]) < rule.max_samples
    assert all(half_width(times) < 0.01 for times in noisy.times_us)


def test_every_sample_is_kept_and_warm_ups_are_not_samples() -> None:
    watch = Scripted([10], 0.05)
    samples = take_samples(watch, [nothing], Stopping(warmups=4))
    assert watch.rounds[0] == 4
    assert len(samples.times_us[0]) == sum(watch.rounds[1:])
    assert all(watch.cold)


def test_time_is_capped_but_the_least_samples_are_taken() -> None:
    started = time.perf_counter()
    samples = take_samples(
        Scripted([10], 5.0, seconds=0.02), [nothing], Stopping(min_samples=5, max_seconds=0.2, warmups=1)
    )
    assert 5 <= len(samples.times_us[0]) <= 12
    assert time.perf_counter() - started < 0.6


@pytest.mark.parametrize("size", [6, 11, 40, 101])
def test_the_interval_of_the_median_covers_it(size: int) -> None:
    random = np.random.default_rng(size)
    hits = 0
    for _ in range(400):
        sample = random.lognormal(0, 0.3, size)
        hits += abs(1 - np.median(sample)) <= 2 * half_width(sample) * np.median(sample)
    # Twice the half-width around the median surely covers it more often than the interval itself, 95 %.
    assert hits >= 0.93 * 400
    assert half_width(np.full(size, 3.0)) == 0


def test_few_samples_have_no_interval() -> None:
    assert half_width([1, 2, 3, 4, 5]) == float("inf")


def test_the_host_stopwatch_reads_a_second_buffer_where_asked() -> None:
    written, read = HostStopwatch(1 << 20), HostStopwatch(1 << 20, Flush.READ)
    assert (written._read.nbytes, read._read.nbytes) == (0, 1 << 20)
    assert read.batch([nothing], 2, cold=True).shape == (1, 2)
    assert read._flush.nbytes == 2 << 20
    assert (read._flush == 2).all()


def test_the_host_stopwatch_times_each_run_apart_and_flushes_between() -> None:
    order: list[str] = []
    watch = HostStopwatch(1 << 20)

    def slow() -> None:
        order.append("slow")
        time.sleep(0.01)

    def quick() -> None:
        order.append("quick")

    times = watch.batch([slow, quick], 3, cold=True)
    assert order == ["slow", "quick"] * 3
    assert times.shape == (2, 3)
    assert np.all(times[0] > 9_000)
    assert np.all(times[1] < 5_000)


def test_a_step_lasts_until_the_device_has_finished() -> None:
    due = [0.0]

    def enqueue() -> None:
        due[0] = time.perf_counter() + 0.02

    def finish() -> None:
        time.sleep(max(0.0, due[0] - time.perf_counter()))

    watch = StepStopwatch(Scripted([1.0], 0.0), finish)
    times = watch.batch([enqueue, nothing], 3, cold=False)
    assert (times[0] >= 20_000).all()
    assert (times[1] < 20_000).all(), "a step waits for the one before, outside of its time"
    assert watch.state() == (1500.0, ["power cap"])
