"""Judging a cost model's order: against every order of equal scores, a count of pairs, and by hand."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import numpy as np
import pandas as pd
import pytest

from spmark.report.analysis.replay import ALL, REGRETS, TOP, judge, summary


@pytest.mark.parametrize("scores", [[3, 1, 2, 5, 4, 0], [1, 1, 2, 2, 2, 0], [0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0]])
def test_equal_scores_count_as_every_order_of_them(scores: list[int]) -> None:
    given, times = np.array(scores, np.float64), np.array([7.0, 3.0, 9.0, 5.0, 4.0, 6.0])
    regrets, within = [], []
    for order in permutations(range(6)):
        if all(given[a] <= given[b] for a, b in pairwise(order)):
            regrets.append(times[order[0]] / 3 - 1)
            within.append([1 in order[:size] for size in TOP])
    judged = judge(given, times)
    assert judged["regret"] == pytest.approx(np.mean(regrets))
    assert judged["tuned_regret"] == pytest.approx(np.min(regrets))
    assert judged["chance_regret"] == pytest.approx(np.mean([times[given == one].min() for one in set(scores)]) / 3 - 1)
    assert [judged[f"top_{size}"] for size in TOP] == pytest.approx(np.mean(within, axis=0).tolist())


def test_tau_counts_pairs() -> None:
    rng = np.random.default_rng(3)
    scores, times = rng.permutation(20).astype(float), rng.random(20)
    signs = [np.sign((scores[a] - scores[b]) * (times[a] - times[b])) for a, b in combinations(range(20), 2)]
    assert judge(scores, times)["kendall"] == pytest.approx(np.mean(signs))


def test_what_has_no_score_comes_last() -> None:
    judged = judge(np.array([2.0, np.nan, 1.0]), np.array([4.0, 2.0, 5.0]))
    assert (judged["regret"], judged["top_1"], judged["top_5"]) == (1.5, 0, 1)
    assert judged["kendall"] == pytest.approx(-1)


def test_the_summary_by_hand() -> None:
    tops = [f"top_{size}" for size in TOP]
    columns = ["implementation", "source", "candidates", *REGRETS, "kendall", *tops]
    rows = [
        ("a", "x", 4, 0.0, 0.0, 0.0, 1.0, 1.0, 1, 1),
        ("a", "x", 6, 0.21, 0.0, 0.44, 0.5, 0.0, 1, 1),
        ("a", "y", 8, 1.0, 0.5, 2.0, 0.0, 0.0, 0, 1),
        ("b", "x", 2, 3.0, 3.0, 3.0, np.nan, 0.5, 1, 1),
    ]
    found = summary(pd.DataFrame(rows, columns=columns)).set_index(["implementation", "source"])
    assert [*found.index] == [("a", "x"), ("a", "y"), ("a", ALL), ("b", "x"), (ALL, ALL)]
    assert found["cases"].tolist() == [2, 1, 3, 1, 4]
    assert found["candidates"].tolist() == [5, 8, 6, 2, 5]
    assert found.loc[("a", "x"), "regret"] == pytest.approx(0.1)
    assert found.loc[("a", "x"), "chance_regret"] == pytest.approx(0.2)
    assert found.loc[("a", ALL), "regret_median"] == pytest.approx(0.21)
    assert found.loc[("a", ALL), "tuned_regret"] == pytest.approx(1.5 ** (1 / 3) - 1)
    assert found.loc[(ALL, ALL), "kendall"] == 0.5
    assert found.loc[(ALL, ALL), "top_1"] == pytest.approx(1.5 / 4)
