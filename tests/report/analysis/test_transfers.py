"""Gains of moved models against closed forms: without noise a first choice has its skill's share of the gain."""

from __future__ import annotations

from typing import Any

import moved_fakes
import numpy as np
import pytest
from scipy import stats

from spmark.impls.core.problem import Op
from spmark.report.analysis.transfers import AHEAD, BEHIND, MISSING, NOT_CLEARLY, Moved, panels_of

MEAN_GAIN = float((0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6)).mean())
"""Mean logarithm of the optimum's speed-up over the six matrices."""


def row_of(of: Moved, method: str, **sizes: int) -> dict[str, Any]:
    frame = of.gains[of.gains["method"] == method]
    for name, count in sizes.items():
        frame = frame[frame[name] == count]
    (row,) = frame.to_dict("records")
    return row


def test_means_are_geometric_over_matrices(moved: Any) -> None:
    found = moved(*moved_fakes.results(noise=0))
    row = row_of(found, "dash")
    assert row["top1_speedup"] == pytest.approx(np.exp(0.9 * MEAN_GAIN))
    assert row["top5_speedup"] == pytest.approx(np.exp(0.96 * MEAN_GAIN))
    assert row["optimum_speedup"] == pytest.approx(np.exp(MEAN_GAIN))
    assert row["optimum_speedup_low"] < row["optimum_speedup"] < row["optimum_speedup_high"]
    assert row["top1_share"] == pytest.approx(np.exp(-0.1 * MEAN_GAIN))
    gains = 0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6)
    assert row["ape_share"] == pytest.approx((np.exp(0.1 * gains) - 1).mean())
    assert row["greatest_top5_speedup"] == pytest.approx(np.exp(0.96 * gains.max()))
    assert (row["opa_score"], row["tau_score"]) == pytest.approx((0.86, 0.72))
    assert (row["opa_ceiling_score"], row["tau_ceiling_score"]) == pytest.approx((0.95, 0.9))
    assert (row["seeds"], row["matrices"], row["configs"], row["simulated"]) == (3, 6, 100, False)


def test_the_interval_is_students_over_seeds(moved: Any) -> None:
    facts = list(moved_fakes.results({"dash": (0.5, 8, 5)}))
    row = row_of(moved(*facts), "dash")
    by_seed = [
        np.mean([np.log(one.default_us / one.top1_us) for one in facts if one.seed == seed]) for seed in range(3)
    ]
    low, high = stats.t.interval(0.95, 2, np.mean(by_seed), stats.sem(by_seed))
    assert (row["top1_speedup_low"], row["top1_speedup_high"]) == pytest.approx((np.exp(low), np.exp(high)))


def test_one_seed_has_no_interval(moved: Any) -> None:
    row = row_of(moved(*moved_fakes.results({"dash": (0.5, 8, 5)}, seeds=(4,))), "dash")
    assert row["seeds"] == 1
    assert np.isnan([row["top1_speedup_low"], row["ape_share_high"], row["tau_score_low"]]).all()
    assert row["top1_speedup"] > 1


def test_baselines_are_compared_matrix_by_matrix(moved: Any) -> None:
    found = moved(*moved_fakes.results(noise=0)).compared.set_index(["baseline", "choice"])
    assert set(found.index) == {
        ("random5", "top5"), ("target_best", "top1"), ("target_best", "top5"), ("rule_ck", "top1"),
        ("lightgbm", "top1"), ("lightgbm", "top5"), ("lightgbm_source", "top1"), ("lightgbm_source", "top5"),
    }  # fmt: skip
    assert found.loc[("lightgbm", "top1"), "ahead_speedup"] == pytest.approx(np.exp(0.3 * MEAN_GAIN))
    assert found.loc[("random5", "top5"), "ahead_speedup"] == pytest.approx(np.exp((0.96 - 0.52) * MEAN_GAIN))
    assert (found["matrices"] == 6).all()
    assert (found["ahead"] == AHEAD).all()


@pytest.mark.parametrize(("skill", "ahead"), [(1.0, BEHIND), (0.9, BEHIND), (0.5, AHEAD)])
def test_who_is_as_fast_is_not_behind(moved: Any, skill: float, ahead: str) -> None:
    methods = {"dash": (0.9, 8, 5), "lightgbm": (skill, 0, 5)}
    compared = moved(*moved_fakes.results(methods, noise=0)).compared
    assert set(compared.loc[compared["baseline"] == "lightgbm", "ahead"]) == {ahead}


def test_an_advantage_within_its_interval_is_not_clear(moved: Any) -> None:
    found = moved(*moved_fakes.results({"dash": (0.57, 8, 5), "lightgbm": (0.5, 0, 5)}, noise=0.2, seeds=(0,)))
    row = found.compared.set_index(["baseline", "choice"]).loc[("lightgbm", "top1")]
    assert row["ahead_speedup_low"] < 1 < row["ahead_speedup"]
    assert row["ahead"] == NOT_CLEARLY


def test_a_missing_baseline_is_missing(moved: Any) -> None:
    methods = {name: of for name, of in (moved_fakes.MODELS | moved_fakes.BASELINES).items() if name != "random5"}
    compared = moved(*moved_fakes.results(methods)).compared
    assert list(compared.loc[compared["ahead"] == MISSING, "baseline"]) == ["random5"]
    without_subject = {name: of for name, of in methods.items() if name != "dash"}
    assert set(moved(*moved_fakes.results(without_subject, op=Op.SDDMM)).compared.query("op == 'sddmm'")["ahead"]) == {
        MISSING
    }


def test_the_rule_is_asked_for_where_it_has_a_meaning(moved: Any) -> None:
    found = moved(*moved_fakes.study(("cuda", "spade_sim")))
    ruled = {title for title, part in panels_of(found.compared) if "rule_ck" in set(part["baseline"])}
    assert ruled == {"spmm, cpu to cuda (test-gpu)"}


def test_sizes_that_most_methods_share_are_the_headline(moved: Any) -> None:
    found = moved(*moved_fakes.study(("cuda",), (Op.SPMM,)))
    shown = found.gains[found.gains["headline"]].set_index("method")[["source_matrices", "target_matrices"]]
    assert tuple(shown.loc["dash"]) == (8, 5)
    assert tuple(shown.loc["scratch"]) == (0, 5)
    assert tuple(shown.loc["zero_shot"]) == (8, 0)
    assert shown.index.is_unique
    assert len(found.gains[found.gains["method"] == "dash"]) == 4
    assert set(found.matrices["method"]) == set(shown.index)


def test_two_sources_share_what_has_none(moved: Any) -> None:
    from_gpu = moved_fakes.results({"dash": (0.3, 8, 5)}, source="cuda", target="spade_sim")
    found = moved(*moved_fakes.results(target="spade_sim"), *from_gpu)
    assert [title for title, _ in panels_of(found.gains)] == [
        "spmm, cpu to spade_sim (simulated)", "spmm, cuda to spade_sim (simulated)"
    ]  # fmt: skip
    assert set(found.gains.loc[found.gains["source"] == "cuda", "method"]) == {
        "dash", "scratch", "random5", "target_best", "rule_ck", "lightgbm"
    }  # fmt: skip


def test_means_are_over_common_matrices_and_who_has_few_is_left_out(moved: Any) -> None:
    facts = list(moved_fakes.results({"dash": (0.9, 8, 5), "lightgbm": (0.6, 0, 5), "scratch": (0.5, 0, 5)}, noise=0))
    kept = [
        one
        for one in facts
        if not (one.method == "lightgbm" and one.matrix == "seeded/m0")
        and not (one.method == "scratch" and one.matrix in ("seeded/m1", "seeded/m2", "seeded/m3"))
    ]
    found = moved(*kept)
    assert set(found.gains["method"]) == {"dash", "lightgbm"}
    assert set(found.gains["matrices"]) == {5}
    assert found.left_out == ("scratch (0 and 5 matrices)",)
    gains = (0.4 * np.random.default_rng(7).uniform(0.5, 1.5, 6))[1:]
    assert row_of(found, "dash")["top1_speedup"] == pytest.approx(np.exp(0.9 * gains.mean()))


def test_curves_are_means_over_the_subjects_seeds(moved: Any) -> None:
    found = moved(*moved_fakes.results(), *moved_fakes.curves(), *moved_fakes.curves(target="spade_sim")).curves
    assert len(found) == 2 * 4 * 6
    last = found[(found["phase"] == "fine-tuning") & (found["epoch"] == 4)].set_index("value_of")
    assert last.loc["opa", "value"] == pytest.approx(0.83)
    assert last.loc["opa", "value_low"] < 0.83 < last.loc["opa", "value_high"]
    assert last.loc["held_prl", "value"] == pytest.approx(0.3)
