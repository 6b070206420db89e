"""The scorecard: what is not run stays empty, ours are the numbers of a hand computation."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import DType, Op
from spmark.records.schema import MatrixKind, ProblemFacts, SearchFacts, Status
from spmark.report.claims.published import PAPERS, load_published
from spmark.report.claims.scorecard import COLUMNS, ClaimKind, Verdict, scorecard, scorecard_tables
from spmark.report.records import current, load_records

WIDTHS = (32, 64, 128, 256, 512)
REFERENCE = Path(__file__).parents[3] / "report" / "reference" / "h200"
HASHES = {
    "cora": "aa" * 32,
    "pubmed": "bb" * 32,
    "reddit_twin": "cc" * 32,
    "ogbn-arxiv": "dd" * 32,
    "ppi-train-20graphs": "ee" * 32,
}


@pytest.fixture
def case(records: ModuleType) -> Callable[..., Any]:
    def make(implementation: str, us: float = 10.0, matrix: str = "planetoid/cora", **changes: Any) -> Any:
        source, name = matrix.split("/")
        fields: dict[str, Any] = {
            "implementation": implementation,
            "source": source,
            "matrix": name,
            "matrix_hash": HASHES[name],
            "matrix_kind": MatrixKind.TWIN if source == "twin" else MatrixKind.PATTERN,
            "samples_us": list(us * np.linspace(0.999, 1.001, 21)),
            "phases_s": {"search": 1.0, "convert": 0.5, "compile": 9.0},
        }
        return records.measurement(**fields | changes)

    return make


@pytest.fixture
def cards(write: Callable[..., Path]) -> Callable[..., pd.DataFrame]:
    """Give the scorecard of records, by claim; the paper is the first argument."""

    def make(paper: str, rows: list[Any]) -> pd.DataFrame:
        return scorecard(load_records([write(rows)]), [paper]).set_index("claim")

    return make


def test_without_records_every_claim_stands_there_empty() -> None:
    table = scorecard(load_records([]))
    assert list(table) == list(COLUMNS)
    assert len(table) == sum(len(load_published(paper).claims) for paper in PAPERS)
    assert set(table["verdict"]) == {"not run"}
    assert set(table["ours"]) == {""} and table["ours_value"].isna().all() and table["ours_low"].isna().all()
    assert (table["why"] != "").all()
    assert table.loc[table["published"] == "none", "published_low"].isna().all()
    assert scorecard_tables(load_records([])) == []


def test_a_mean_over_widths_is_reproduced(case: Callable[..., Any], cards: Callable[..., pd.DataFrame]) -> None:
    ratios = (3.2, 3.4, 3.7, 4.0, 4.4)
    rows = [case("cusparse", 20 * ratio, width=width) for ratio, width in zip(ratios, WIDTHS, strict=True)]
    rows += [case("liteform_published", 20, width=width) for width in WIDTHS]
    card = cards("liteform", rows).loc["figure6-bars.cora.liteform"]
    assert card["published"] == "3.729×"
    assert card["ours_value"] == pytest.approx(np.prod(ratios) ** 0.2, rel=1e-9)
    assert card["ours_low"] < card["ours_value"] < card["ours_high"]
    assert (card["verdict"], card["cases"], card["device"]) == ("reproduced", 5, "test-gpu")
    assert "5 of 5 ratios are of records taken apart" in card["why"]


def test_another_dtype_and_another_op_are_no_answer(
    case: Callable[..., Any], cards: Callable[..., pd.DataFrame]
) -> None:
    rows = [case(name, dtype=DType.FLOAT16, width=32) for name in ("cusparse", "liteform_published")]
    rows += [case(name, op=Op.SDDMM, width=32) for name in ("cusparse", "liteform_published")]
    card = cards("liteform", rows)
    assert card.loc["figure6-ms.cora-j-32.liteform", "verdict"] == "not run"
    assert card.loc["figure6-ms.cora-j-32.liteform", "why"] == "without a result: cora"


def test_a_stand_in_and_a_missing_case_are_reservations(
    case: Callable[..., Any], cards: Callable[..., pd.DataFrame]
) -> None:
    rows = [case("cusparse", 16.5, "twin/reddit_twin", width=width) for width in WIDTHS]
    rows += [case("liteform_published", 10, "twin/reddit_twin", width=width) for width in WIDTHS]
    rows += [case("cusparse", 37.29, width=width) for width in WIDTHS]
    rows += [case("liteform_published", 10, width=width) for width in WIDTHS[:3]]
    rows += [case("liteform_published", width=256, status=Status.TIMEOUT)]
    table = cards("liteform", rows)
    twin, part = table.loc["figure6-bars.reddit.liteform"], table.loc["figure6-bars.cora.liteform"]
    assert twin["verdict"] == part["verdict"] == "direction holds"
    assert "stand-ins of the same size: twin/reddit_twin" in twin["why"]
    assert "without a result: cora (timeout), cora (width not run)" in part["why"]
    assert table.loc["table4.reddit.nodes", "verdict"] == "not run"
    whole = table.loc["over-cusparse"]
    assert whole["verdict"] == "no verdict" and "citeseer" in whole["why"] and "and 3 more" in whole["why"]


def test_a_range_is_least_and_greatest_of_the_matrices(
    case: Callable[..., Any], cards: Callable[..., pd.DataFrame]
) -> None:
    rows = [
        case(name, us, matrix, width=width)
        for matrix, ratio in (
            ("planetoid/cora", 2.34),
            ("planetoid/pubmed", 1.22),
            ("dgl/ppi-train-20graphs", 1.8),
            ("twin/reddit_twin", 1.5),
        )
        for name, us in (("cusparse", 10 * ratio), ("sparsetir_paper", 10.0))
        for width in WIDTHS
    ]
    card = cards("sparsetir", rows).loc["spmm-over-cusparse-v100"]
    assert (card["published_low"], card["published_high"]) == (1.22, 2.34)
    assert (card["ours_low"], card["ours_high"]) == pytest.approx((1.22, 2.34))
    assert card["ours"] == "1.22× to 2.34×" and isnan(card["ours_value"])
    assert card["verdict"] == "direction holds" and "citeseer" in card["why"]


def test_search_ratio_padding_and_memory(case: Callable[..., Any], cards: Callable[..., pd.DataFrame]) -> None:
    common: dict[str, Any] = {"search": SearchFacts(candidates=4, compiled=2, measured=2, cores=1)}
    rows = [
        case("sparsetir_paper", width=32, phases_s={"search": 6.0, "compile": 50.0}, stored=12_500, **common),
        case("liteform_published", width=32, phases_s={"features": 9.0, "select": 0.05, "search": 0.05}, **common),
    ]
    facts = ProblemFacts(num_rows=2708, num_cols=2708, nnz=10_000, longest_row=9, flops=100, compulsory_bytes=100)
    rows = [row.model_copy(update={"problem": facts}) for row in rows]
    liteform = cards("liteform", rows)
    ratio = liteform.loc["overhead-sparsetir"]
    assert ratio["ours_value"] == pytest.approx(60.0) and ratio["verdict"] == "no verdict"
    assert liteform.loc["figure8-s.cora.sparsetir-j-32", "ours"] == "6 s"
    assert liteform.loc["figure8-s.cora.sparsetir-j-32", "verdict"] == "no verdict"
    assert liteform.loc["table4.cora.nodes", "verdict"] == "reproduced"
    assert liteform.loc["table4.cora.edges", "verdict"] == "not reproduced"


def test_padding_is_a_share_of_all_stored_elements(
    case: Callable[..., Any], cards: Callable[..., pd.DataFrame]
) -> None:
    facts = ProblemFacts(num_rows=9, num_cols=9, nnz=8_410, longest_row=9, flops=100, compulsory_bytes=100)
    row = case("sparsetir_paper", width=32, stored=10_000, problem=facts)
    card = cards("sparsetir", [row]).loc["table1.cora.padding"]
    assert card["ours_value"] == pytest.approx(15.9) and card["verdict"] == "reproduced"


def test_variants_are_found_by_their_labels(case: Callable[..., Any], cards: Callable[..., pd.DataFrame]) -> None:
    rows = [
        case(
            "stile", 10, "ogb/ogbn-arxiv", width=32, dtype=DType.FLOAT16, label="stile_mixture",
            requested={"keep_mixture": True},
        ),
        case(
            "stile", 11, "ogb/ogbn-arxiv", width=32, dtype=DType.FLOAT16, label="stile_mixture_no_withdraw",
            requested={"keep_mixture": True, "withdraw": False},
        ),
    ]  # fmt: skip
    table = cards("stile", rows)
    card = table.loc["table6.arxiv.latency-without-withdrawing"]
    assert card["ours_value"] == pytest.approx(1.1) and card["verdict"] == "neutral"
    assert table.loc["table6.arxiv.latency-without-local-search", "why"] == "no record of stile_mixture_no_local_search"


def test_the_page_shows_papers_that_have_answers(write: Callable[..., Path], case: Callable[..., Any]) -> None:
    frame = load_records([write([case("cusparse", width=32), case("gespmm", width=32)])])
    verdicts, claims = scorecard_tables(frame)
    assert set(verdicts.frame["paper"]) == {"liteform"}
    absent = (ClaimKind.SIMULATOR, ClaimKind.STORAGE)
    assert list(verdicts.frame["kind"]) == [kind.value for kind in ClaimKind if kind not in absent]
    row = verdicts.frame.iloc[0]
    assert row[[v.value for v in Verdict]].sum() == row["counted"]
    assert row["no verdict"] == 1
    order = list(claims.frame["verdict"] == "not run")
    assert order == sorted(order)
    kinds = [kind.value for kind in ClaimKind]
    run = claims.frame.loc[claims.frame["verdict"] != "not run", "kind"].map(kinds.index)
    assert list(run) == sorted(run)
    assert "figure6-ms.cora-j-32.cusparse" in set(claims.frame["claim"])
    assert set(scorecard_tables(frame, ["dash"])[0].frame["paper"]) == {"dash"}


def test_devices_without_times_have_no_scorecard(write: Callable[..., Path], case: Callable[..., Any]) -> None:
    host = [case("liteform_published", width=32, device_kind=DeviceKind.HOST_SIMT, samples_us=[])]
    assert scorecard_tables(load_records([write(host)])) == []


def test_no_speedup_is_taken_from_a_cpu(cards: Callable[..., pd.DataFrame], case: Callable[..., Any]) -> None:
    rows = [case(name, width=32, device_kind=DeviceKind.CPU) for name in ("cusparse", "liteform_published")]
    table = cards("liteform", rows)
    assert table.loc["figure6-ms.cora-j-32.liteform", "why"] == "no GPU was measured"
    assert table.loc["figure8-s.cora.liteform", "ours"] == "1 s"


def test_the_published_records_answer_with_their_own_medians() -> None:
    frame = load_records([REFERENCE / "graphs_spmm"])
    table = scorecard(frame, ["liteform"]).set_index("claim")
    newest = current(frame)
    own = newest[
        (newest["matrix"] == "planetoid/pubmed") & (newest["width"] == 128) & (newest["label"] == "cusparse")
        & (newest["dtype"] == "float32")
    ]  # fmt: skip
    card = table.loc["figure6-ms.pubmed-j-128.cusparse"]
    assert card["ours_value"] == pytest.approx(np.median(own["samples_us"].iloc[0]) * 1e-3)
    assert (card["verdict"], card["published_low"]) == ("no verdict", 0.076073)
    assert (table["verdict"] != "reproduced")[table["kind"] != "sizes"].all()
