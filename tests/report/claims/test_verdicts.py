"""The rules of the verdicts at their borders, and totals in which nothing counts twice."""

from __future__ import annotations

from collections import Counter
from math import nan, sqrt
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from spmark.report.analysis.statistics import Interval
from spmark.report.claims.answers import Answer
from spmark.report.claims.published import PAPERS, Claim, Published, load_published
from spmark.report.claims.scorecard import ClaimKind, Verdict, groups, judge, kind_of, scorecard, totals
from spmark.report.records import load_records

STAND_IN = ("a stand-in",)
SCORES = ("accuracy", "precision", "recall", "f1")
REFERENCE = Path(__file__).parents[3] / "report" / "reference" / "h200" / "graphs_spmm"
EDGE = 1e-6
"""A step over a border that no rounding makes."""


def claim_of(value: Any, statistic: str = "geomean_speedup", **changes: Any) -> Claim:
    over = {"over": "b"} if "speedup" in statistic or "ratio" in statistic else {}
    fields: dict[str, Any] = {
        "id": "c", "where": "w", "what": "w", "value": value, "unit": "x", "gpu": "A100",
        "measure": {"statistic": statistic, "of": "a"} | over,
    }  # fmt: skip
    return Claim.model_validate(fields | changes)


def found(value: float, low: float = nan, high: float = nan, **changes: Any) -> Answer:
    return Answer(Interval(value, low, high), Interval(value, low, high), 1, **changes)


def verdict_on(value: Any, *ours: float, reserved: bool = False, **changes: Any) -> Verdict:
    return judge(claim_of(value, **changes), found(*ours, reservations=STAND_IN if reserved else ()), "nvidia-h200")


def test_within_15_per_cent_of_the_published_number_is_reproduced() -> None:
    for ours in (2.0, 1.7, 2.3):
        assert verdict_on(2.0, ours) == "reproduced"
    for ours in (1.7 - EDGE, 2.3 + EDGE):
        assert verdict_on(2.0, ours) == "direction holds"
    assert verdict_on(0.5, 0.575) == "reproduced"
    assert verdict_on(0.5, 0.575 + EDGE) == "direction holds"


def test_an_interval_reproduces_up_to_15_per_cent_to_either_side() -> None:
    # Ours is 3, 33 % above the published number, which the interval's lower end reaches.
    wide = 3 - 2 * 0.45
    assert verdict_on(3 - 0.45, 3.0, 3 - 0.45, 3.45) == "reproduced"
    assert verdict_on(wide, 3.0, wide, 3.0) == "reproduced"
    assert verdict_on(wide, 3.0, wide - EDGE, 3 + EDGE) == "direction holds"
    assert verdict_on(2.0, 3.0, 2.0, 4.0) == "direction holds"
    assert verdict_on(2.0, 3.0, 2.0 + EDGE, 3.0) == "direction holds"


def test_a_ratio_near_the_published_one_but_across_1_is_not_reproduced() -> None:
    assert verdict_on(1.11, 1.0 + EDGE) == "reproduced"
    assert verdict_on(1.11, 1.0) == "not reproduced"
    assert verdict_on(1.11, 0.97) == "not reproduced"
    assert verdict_on(0.89, 1.01) == "not reproduced"


def test_a_direction_holds_from_half_of_the_published_logarithm_on() -> None:
    assert verdict_on(4.0, 2.0) == "direction holds"
    assert verdict_on(4.0, 2.0 - EDGE) == "not reproduced: same direction"
    assert verdict_on(0.25, 0.5) == "direction holds"
    assert verdict_on(0.25, 0.5 + EDGE) == "not reproduced: same direction"
    assert verdict_on(281.0, 5.5) == "not reproduced: same direction"
    assert verdict_on(281.0, sqrt(281.0)) == verdict_on(281.0, 1e4) == "direction holds"


def test_a_direction_needs_the_whole_interval_on_its_side() -> None:
    assert verdict_on(4.0, 2.5, 1 + EDGE, 5.0) == "direction holds"
    assert verdict_on(4.0, 2.5, 1.0, 5.0) == "not reproduced"
    assert verdict_on(4.0, 1.5, 1.0, 2.0) == "not reproduced"
    assert verdict_on(0.25, 0.4, 0.1, 1 - EDGE) == "direction holds"
    assert verdict_on(0.25, 0.4, 0.1, 1.0) == "not reproduced"
    assert verdict_on(4.0, 0.8) == verdict_on(0.25, 1.2) == "not reproduced"


def test_a_reservation_leaves_the_direction_at_best() -> None:
    assert verdict_on(2.0, 2.0, 1.9, 2.1, reserved=True) == "direction holds"
    assert verdict_on(2.0, 2.0, 0.9, 2.1, reserved=True) == "not reproduced"
    assert verdict_on(1.15, 1.03, reserved=True) == "not reproduced: same direction"


@pytest.mark.parametrize("published", [0.9, 1.0, 1.1, [0.9, 1.1], [1.0, 1.1]])
def test_a_published_ratio_of_0_9_to_1_1_is_neutral_whatever_ours_is(published: Any) -> None:
    statistic = "speedup_range" if isinstance(published, list) else "search_ratio"
    for ours in (0.2, 1.0, 5.0):
        assert verdict_on(published, ours, statistic=statistic) == "neutral"
    assert verdict_on(published, nan, statistic=statistic) == "not run"


def test_beyond_0_9_and_1_1_no_ratio_is_neutral() -> None:
    for published in (0.9 - EDGE, 1.1 + EDGE):
        assert verdict_on(published, published) == "reproduced"
    assert verdict_on([0.9 - EDGE, 1.1], 1.0, statistic="speedup_range") != "neutral"
    assert verdict_on(1.0, 1.0, statistic="median_ms", gpu="H200", unit="ms") == "reproduced"


def test_both_ends_of_a_range_must_hold() -> None:
    def on(published: tuple[float, float], low: float, high: float) -> Verdict:
        answered = Answer(Interval(low, nan, nan), Interval(high, nan, nan), 9)
        return judge(claim_of(list(published), "speedup_range"), answered, "nvidia-h200")

    assert on((0.6, 2.0), 0.62, 2.1) == "reproduced"
    assert on((0.6, 2.0), 0.7, 4.0) == "direction holds"
    assert on((0.6, 2.0), 0.9, 4.0) == "not reproduced: same direction"
    assert on((0.6, 2.0), 1.2, 2.0) == "not reproduced"
    # 1.1 is above 1, and ours must be; an end at 1 is met by what agrees with it, or by more of the other end's kind.
    assert on((1.1, 1.2), 0.95, 1.2) == "not reproduced"
    assert on((1.0, 2.0), 0.95, 2.0) == "reproduced"
    assert on((1.0, 2.0), 0.95, 1.5) == "direction holds"
    assert on((1.0, 2.0), 1.3, 1.5) == "direction holds"
    assert on((1.0, 2.0), 0.8, 1.5) == "not reproduced"


def test_a_bound_holds_where_the_whole_interval_is_beyond_it() -> None:
    assert verdict_on(18.0, 18 + EDGE, bound="above") == "reproduced"
    assert verdict_on(18.0, 30.0, bound="above", reserved=True) == "direction holds"
    assert verdict_on(18.0, 18.0, bound="above") == verdict_on(18.0, 20.0, 17.0, 22.0, bound="above")
    assert verdict_on(18.0, 18.0, bound="above") == "direction holds"
    assert verdict_on(18.0, 2.0, bound="above") == "not reproduced: same direction"
    assert verdict_on(18.0, 0.99, bound="above") == "not reproduced"
    assert verdict_on(2.1, 2.0, statistic="padded_share", bound="below", unit="%") == "reproduced"
    assert verdict_on(2.1, 2.1, statistic="padded_share", bound="below", unit="%") == "not reproduced"


def test_what_is_said_to_be_faster_has_a_direction_and_no_number() -> None:
    assert verdict_on(1.0, 1.3, 1 + EDGE, 1.5, bound="above") == "direction holds"
    assert verdict_on(1.0, 1.3, 1.0, 1.5, bound="above") == "not reproduced"
    assert verdict_on(1.0, 0.98, bound="above") == "not reproduced"


def test_numbers_that_are_no_ratios_have_no_direction() -> None:
    share: dict[str, Any] = {"statistic": "padded_share", "unit": "%"}
    assert verdict_on(20.0, 23.0, **share) == "reproduced"
    assert verdict_on(20.0, 23 + EDGE, **share) == "not reproduced"
    assert verdict_on(20.0, 20.0, reserved=True, **share) == "no verdict"
    assert judge(claim_of("oom", "median_ms"), found(1.0), "a100") == "no verdict"


def test_a_time_is_judged_on_the_published_device_only() -> None:
    claim = claim_of(2.0, "median_ms", gpu="V100", unit="ms")
    assert judge(claim, found(2.0), "nvidia-h200") == "no verdict"
    assert judge(claim, found(2.0), "tesla-v100-sxm2-16gb") == "reproduced"
    assert judge(claim, found(4.0), "tesla-v100-sxm2-16gb") == "not reproduced"


def test_half_of_the_matrices_must_have_answered() -> None:
    assert judge(claim_of(2.0), found(2.0, covered=0.5), "x") == "reproduced"
    assert judge(claim_of(2.0), found(2.0, covered=0.5 - EDGE), "x") == "no verdict"


def test_sizes_are_equal_or_not() -> None:
    nodes, density = claim_of(100.0, "nnz", unit="count"), claim_of(0.01, "density", unit="score")
    assert (judge(nodes, found(100.0), "x"), judge(nodes, found(100.4), "x")) == ("reproduced", "not reproduced")
    assert judge(density, found(0.01004), "x") == "reproduced"
    assert judge(density, found(0.01006), "x") == "not reproduced"


def test_kinds_keep_gpus_studies_sizes_and_settings_apart() -> None:
    kinds = {
        paper: Counter(kind_of(claim) for claim in load_published(paper).claims)
        for paper in ("liteform", "stile", "dash")
    }
    by_id = {claim.id: kind_of(claim) for claim in load_published("liteform").claims}
    assert by_id["over-cusparse"] is by_id["figure6-ms.cora-j-32.cusparse"] is ClaimKind.GPU
    assert by_id["table5.qda.recall"] is by_id["selection-accuracy"] is ClaimKind.STUDY
    assert by_id["table4.cora.density"] is ClaimKind.SIZES
    assert by_id["training-share"] is ClaimKind.SETTINGS
    of_others = {claim.id: kind_of(claim) for name in ("stile", "sparsetir") for claim in load_published(name).claims}
    assert of_others["table1.cora.padding"] is of_others["sddmm-memory-reddit"] is ClaimKind.STORAGE
    assert of_others["table6.ppi.search-time-without-local-search"] is ClaimKind.SEARCH
    assert of_others["table6.ppi.latency-without-local-search"] is ClaimKind.GPU
    assert kinds["stile"][ClaimKind.STUDY] == 0
    assert kinds["liteform"][ClaimKind.STUDY] > 80
    assert kinds["dash"][ClaimKind.SIMULATOR] > kinds["dash"][ClaimKind.GPU] > 0


def test_what_one_measurement_answers_counts_as_its_first_claim() -> None:
    ratio = {"statistic": "geomean_speedup", "of": "a", "over": "b"}
    rows: list[dict[str, Any]] = [
        {"id": "on-one-gpu"},
        {"id": "on-another-gpu", "gpu": "V100", "value": 3.0, "measure": ratio | {"differs": "other"}},
        {"id": "other-matrix", "conditions": {"matrices": ["pubmed"]}},
        {"id": "other-width", "conditions": {"matrices": ["cora"], "widths": [32]}},
        {"id": "other-baseline", "measure": ratio | {"over": "c"}},
        {"id": "in-the-abstract", "group": "never-run", "measure": {"none": "not run at all"}},
        {"id": "in-the-text", "group": "never-run", "measure": {"none": "not run at all"}},
        {"id": "alone", "measure": {"none": "not run at all"}},
    ]
    shared = {
        "where": "w", "what": "w", "value": 2.0, "unit": "x", "gpu": "A100", "measure": ratio,
        "conditions": {"matrices": ["cora"]},
    }  # fmt: skip
    published = Published.model_validate(
        {
            "schema": 1, "paper": "p", "title": "t", "citation": "c", "sources": ["s"],
            "matrices": {"cora": ["planetoid/cora"], "pubmed": ["planetoid/pubmed"]},
            "claims": [shared | row for row in rows],
        }
    )  # fmt: skip
    assert groups(published) == {
        "on-one-gpu": "on-one-gpu", "on-another-gpu": "on-one-gpu", "other-matrix": "other-matrix",
        "other-width": "other-width", "other-baseline": "other-baseline",
        "in-the-abstract": "never-run", "in-the-text": "never-run",
        "alone": "alone",
    }  # fmt: skip


@pytest.mark.parametrize("paper", PAPERS)
def test_no_measurement_counts_twice(paper: str) -> None:
    published = load_published(paper)
    counted = groups(published)
    answered: dict[object, set[str]] = {}
    for claim in published.claims:
        if claim.measure.statistic:
            about, measure = claim.conditions, claim.measure.model_dump(exclude={"differs"})
            key = (repr(measure), about.op, about.dtype, about.widths, about.matrices)
            answered.setdefault(key, set()).add(counted[claim.id])
    assert all(len(names) == 1 for names in answered.values())
    kinds = {claim.id: kind_of(claim) for claim in published.claims}
    assert all(kinds[name] is kinds[counted[name]] for name in counted if counted[name] in kinds)


def test_the_four_scores_of_a_predictor_count_once() -> None:
    counted = groups(load_published("liteform"))
    for table in ("table5", "table6"):
        names = {counted[f"{table}.{model}.{score}"] for model in ("qda", "adaboost") for score in SCORES}
        assert len(names) == 2
    assert counted["table5.random-forest.accuracy"] == counted["selection-accuracy"]
    assert counted["table6.random-forest.cosine-similarity"] not in counted["table6.random-forest.accuracy"]


def cards_of(*rows: tuple[str, str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["paper", "kind", "group", "verdict"])


def test_a_group_counts_once_with_its_worst_verdict() -> None:
    card = totals(
        cards_of(
            ("p", "GPU", "a", "reproduced"), ("p", "GPU", "a", "not reproduced: same direction"),
            ("p", "GPU", "b", "not run"), ("p", "GPU", "b", "direction holds"), ("p", "GPU", "c", "neutral"),
            ("p", "CPU study", "d", "reproduced"), ("p", "CPU study", "d", "reproduced"),
            ("q", "GPU", "a", "not reproduced"),
        )
    )  # fmt: skip
    assert list(zip(card["paper"], card["kind"], strict=True)) == [("p", "GPU"), ("p", "CPU study"), ("q", "GPU")]
    assert list(card["cells"]) == [5, 2, 1]
    assert list(card["counted"]) == [3, 1, 1]
    first = card.iloc[0]
    assert {v: first[v] for v in Verdict if first[v]} == {
        "not reproduced: same direction": 1, "direction holds": 1, "neutral": 1,
    }  # fmt: skip
    assert (card.iloc[1]["reproduced"], card.iloc[2]["not reproduced"]) == (1, 1)


def test_totals_add_up_over_published_records() -> None:
    cards = scorecard(load_records([REFERENCE]))
    card = totals(cards)
    assert card["cells"].sum() == len(cards) == sum(len(load_published(paper).claims) for paper in PAPERS)
    assert card["counted"].sum() == len(cards.drop_duplicates(["paper", "group"]))
    assert (card[[verdict.value for verdict in Verdict]].sum(axis=1) == card["counted"]).all()
    assert (cards["verdict"] != "not run").any()


@pytest.mark.parametrize(
    ("paper", "name", "ours", "expected"),
    [
        ("sparsetir", "dbsr-over-bsr", (0.908, 0.873, 0.945), "not reproduced"),
        ("sparsetir", "srbcrs-over-bsr", (0.971, 0.89, 1.071), "not reproduced"),
        ("sparsetir", "srbcrs-over-bsr", (1.07, 1.01, 1.1), "direction holds"),
        ("lo_spmm", "search-over-ec-spmm", (0.991, 0.848, 1.141), "not reproduced"),
        ("lo_spmm", "search-reduction", (5.5, nan, nan), "not reproduced: same direction"),
        ("lo_spmm", "over-cublas-always", (0.999, 0.99, 1.01), "not reproduced"),
        ("lo_spmm", "over-ec-spmm-v100", (0.5, 0.4, 0.6), "neutral"),
        ("stile", "spmm-attention-over-triton", (0.943, nan, nan), "not reproduced"),
    ],
)
def test_claims_in_print(paper: str, name: str, ours: tuple[float, float, float], expected: str) -> None:
    claim = next(claim for claim in load_published(paper).claims if claim.id == name)
    reserved = (claim.measure.differs,) if claim.measure.differs else ()
    assert judge(claim, found(*ours, reservations=reserved), "nvidia-h200") == expected
