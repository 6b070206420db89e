"""Every claims file against its schema, every cell of every table, and numbers read in the papers a second time."""

from __future__ import annotations

from collections import Counter

import pytest

from spmark.datasets.sources.table import SOURCES
from spmark.impls.core.errors import RecordError
from spmark.impls.core.interfaces import PHASES
from spmark.report.claims.published import FACTS, PAPERS, RATIOS, Claim, Published, Statistic, load_published, parse

pytestmark = pytest.mark.full

TABLES = {
    "stile": {"table4": (12, 3), "table5": (12, 2), "table6": (8, 3), "table7": (8, 12)},
    "sparsetir": {"table1": (7, 3), "table2": (5, 4)},
    "liteform": {
        "table4": (8, 3), "table5": (10, 6), "table6": (10, 7), "figure6-ms": (35, 8), "figure6-bars": (7, 7),
        "figure8-s": (7, 7), "figure10-selection": (10, 1), "figure10-partitions": (10, 2), "figure11": (5, 4),
    },
    "lo_spmm": {"table2": (2, 5), "table3": (7, 1), "table4": (2, 2)},
    "dash": {"table2": (11, 5), "table3": (3, 1), "table5": (7, 2)},
}  # fmt: skip
"""Rows and columns with numbers, as they stand in the papers."""

SPOT = {
    "stile": {
        "spmm-graphs-over-cusparse": (2.1, 18.0),
        "sddmm-graphs-over-vectorsparse": (3.4, 2283.5),
        "table5.notredame.spmm": 3015.7,
        "table6.reddit.search-time-without-local-search": 267.4,
        "table7.notredame-sddmm.search-time-with-ell-or-1d-only": 0.002,
        "table7.strided-sddmm.latency-with-blocks-only": 2.6,
        "cost-rmse-1d": 4.8e-5,
    },
    "sparsetir": {
        "spmm-over-cusparse-v100": (1.22, 2.34),
        "table1.reddit.padding": 28.6,
        "table2.am.edges": 5_668_682,
        "dbsr-over-bsr": 1.0,
    },
    "liteform": {
        "over-cusparse": 2.06,
        "over-triton": 18.72,
        "overhead-suitesparse": 1150.2,
        "figure6-ms.reddit-j-512.liteform": 84.81777198,
        "figure6-ms.proteins-j-32.triton": "oom",
        "figure6-ms.cora-j-32.cusparse": 0.024484,
        "table5.gaussian-process.seconds-of-training": 346.2509,
        "table6.qda.accuracy": 0.21,
        "table4.arxiv.density": 4.07e-5,
        "figure11.width-up-to-256.cost": 3_546_141_696,
    },
    "lo_spmm": {
        "over-cusparse-rtx2080ti": 37.75,
        "over-sputnik-v100": 2.56,
        "table2.v100.sparta": 281.29,
        "table4.v100.lo-spmm-rank": 3.68,
    },
    "dash": {
        "spade-spmm-max": 5.46,
        "gpu-sddmm-top5": 1.15,
        "table2.zero-shot.loss-against-the-optimum": 46.22,
        "table2.no-transfer-5-matrices.samples-of-the-cpu": "-",
    },
}


@pytest.fixture(scope="module", params=PAPERS)
def published(request: pytest.FixtureRequest) -> Published:
    return load_published(request.param)


def test_every_table_has_every_cell(published: Published) -> None:
    expected = TABLES[published.paper]
    assert {table.id: (len(table.rows), len(table.columns)) for table in published.tables} == expected
    cells = Counter(claim.id.split(".", 1)[0] for claim in published.claims if "." in claim.id)
    assert cells == {name: rows * columns for name, (rows, columns) in expected.items()}


def test_numbers_stand_as_in_the_paper(published: Published) -> None:
    values = {claim.id: claim.value for claim in published.claims}
    expected = SPOT[published.paper]
    assert {name: values.get(name) for name in expected} == expected


def test_every_claim_says_what_it_is(published: Published) -> None:
    for claim in published.claims:
        assert "{" not in claim.what, claim.id
        if claim.measure.statistic and claim.measure.statistic not in FACTS:
            assert claim.gpu or claim.measure.statistic in (Statistic.PADDED_SHARE, Statistic.PREDICTION), (
                f"{claim.id}: a measured number without the device that it is from"
            )
            of_both = (Statistic.SEARCH_RANGE_S, Statistic.CONFIG_RANGE, Statistic.PREDICTION)
            assert claim.conditions.op or claim.measure.statistic in of_both, claim.id
        if claim.measure.statistic in RATIOS:
            assert claim.unit == "x", claim.id
        assert set(claim.measure.phases) <= set(PHASES), claim.id
        assert len(claim.measure.none) == 0 or len(claim.measure.none) > 10, claim.id


def test_matrices_are_of_sources_that_exist(published: Published) -> None:
    for name, patterns in published.matrices.items():
        assert patterns, name
        assert all(pattern == "*" or pattern.split("/")[0] in SOURCES for pattern in patterns), name


def test_raw_times_give_the_published_means() -> None:
    """The bars of LiteForm's figure 6 follow from its raw times: a cell that was copied wrongly would show."""
    values = {claim.id: claim.value for claim in load_published("liteform").claims}
    bars = [name for name in values if name.startswith("figure6-bars.") and values[name] != "oom"]
    assert len(bars) == 47
    for bar in bars:
        _, graph, method = bar.split(".")
        product = 1.0
        for width in (32, 64, 128, 256, 512):
            cell = f"figure6-ms.{graph}-j-{width}"
            product *= _number(values[f"{cell}.cusparse"]) / _number(values[f"{cell}.{method}"])
        assert product ** (1 / 5) == pytest.approx(_number(values[bar]), abs=6e-4), bar


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value


CLAIM = """
schema: 1
paper: stile
title: t
citation: c
sources: [s]
matrices: {cora: [planetoid/cora]}
claims:
  - id: one
    where: section 1
    what: speed
    value: 2.0
    unit: x
    gpu: A100
    conditions: {op: spmm, matrices: [cora]}
    measure: {statistic: geomean_speedup, of: stile, over: cusparse}
"""
TABLE = """
tables:
  - id: t
    where: table 1
    shared: {what: "{column} of {row}", unit: s, gpu: A100, conditions: {op: spmm}, measure: {statistic: search_s}}
    columns:
      ours: {measure: {of: stile}}
      theirs: {measure: {none: not here at all}}
    rows:
      cora: {conditions: {matrices: [cora]}, cells: [1.5, oom]}
"""


def test_a_cell_takes_from_table_column_and_row() -> None:
    _, ours, theirs = parse(CLAIM + TABLE, "x.yaml").claims
    assert isinstance(ours, Claim)
    assert (ours.id, ours.what, ours.value, ours.where) == ("t.cora.ours", "ours of cora", 1.5, "table 1")
    assert (ours.conditions.op, ours.conditions.matrices, ours.measure.of) == ("spmm", ("cora",), "stile")
    assert (theirs.value, theirs.measure.statistic, theirs.measure.none) == ("oom", None, "not here at all")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("value: 2.0", "valeu: 2.0", "valeu"),
        ("value: 2.0", "value: [3, 2]", "least before greatest"),
        ("value: 2.0", "value: fast", "value"),
        ("value: 2.0", "value: 0.0", "a ratio above 0"),
        ("value: 2.0", "value: 2.0\n    bound: under", "bound"),
        ("value: 2.0", "value: [2, 3]\n    bound: above", "one number for a bound"),
        ("geomean_speedup, of: stile, over: cusparse", "config_range, of: stile", "metric"),
        ("geomean_speedup", "speedup_range", "least and greatest"),
        ("geomean_speedup", "fastest", "statistic"),
        (", over: cusparse", "", "'of' and 'over'"),
        ("of: stile, over: cusparse}", "of: stile, over: cusparse, none: why}", "both or neither"),
        ("matrices: [cora]}\n    measure", "matrices: [pubmed]}\n    measure", "pubmed"),
        ("unit: x", "unit: parsec", "unit"),
        ("cells: [1.5, oom]", "cells: [1.5]", "expected 2 cells, found 1"),
        ("none: not here at all", "none: not here, at all", "at all"),
        ("  - id: one", "  - id: t.cora.ours", "twice"),
        ("schema: 1", "schema: 1\n: {", "expected YAML"),
    ],
)
def test_a_broken_file_is_named_with_its_fault(old: str, new: str, said: str) -> None:
    text = (CLAIM + TABLE).replace(old, new, 1)
    assert text != CLAIM + TABLE
    with pytest.raises(RecordError, match=r"x\.yaml: ") as caught:
        parse(text, "x.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a: " + "9" * 5000, "a: 2026-99-99", "\ud800", "&a [*a]", "a: [1, {b: 3}]", "3"]
)
def test_what_is_no_file_of_claims_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match=r"claims\.yaml"):
        parse(text, "claims.yaml")


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(RecordError, match="expected a paper out of dash"):
        load_published("../secrets")
