"""Statistics that answer claims about picks and about columns, by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spmark.impls.core.problem import DType, Op
from spmark.records.schema import Baseline, MatrixKind, ProblemFacts
from spmark.report.claims.answers import Records, answer
from spmark.report.claims.published import RANGES, Claim, Conditions, Measure, Statistic
from spmark.report.claims.scorecard import judge
from spmark.report.records import current, load_records

MATRICES = {"layers": ("dnn_layers/*",)}


def claim_of(statistic: Statistic, of: str, over: str = "", **measure: Any) -> Claim:
    conditions = Conditions(op=Op.SPMM, dtype=DType.FLOAT32, matrices=("layers",))
    return Claim(
        id="x", where="table 4", what="w", value=(1.0, 2.0) if statistic in RANGES else 2.0, unit="%", gpu="V100",
        conditions=conditions, measure=Measure(statistic=statistic, of=of, over=over, **measure),
    )  # fmt: skip


@pytest.fixture
def records_of(records, write):
    def make(cases):
        rows = []
        for number, (label, matrix, nnz, us, base_us) in enumerate(cases):
            facts = ProblemFacts(num_rows=8, num_cols=9, nnz=nnz, longest_row=9, flops=10, compulsory_bytes=10)
            base = base_us and Baseline(implementation="cusparse_best", config={}, samples_us=[base_us] * 9)
            rows.append(
                records.measurement(
                    implementation="lo_spmm", label=label, source="dnn_layers", matrix=matrix, problem=facts,
                    matrix_kind=MatrixKind.SYNTHETIC, matrix_hash=f"{number:064x}", baseline=base,
                    samples_us=[us] * 9,
                )
            )  # fmt: skip
        return Records(load_records([write(rows)]).assign(matrix=lambda f: f["matrix"].str.split(" #").str[0]))

    return make


def test_the_loss_of_a_pick_is_its_mean_distance_from_the_best(records_of):
    held = records_of(
        [
            ("pick", "a", 5, 11.0, 10.0), ("exhaustive", "a", 5, 10.0, 10.0),
            # The clock was half as fast when the best of b was timed: the pick takes 1.2 times as long, not 0.6 times.
            ("pick", "b", 5, 12.0, 10.0), ("exhaustive", "b", 5, 20.0, 20.0),
            ("pick", "c", 5, 9.5, 10.0), ("exhaustive", "c", 5, 10.0, 10.0),
            ("pick", "d", 5, 9.5, 10.0),
        ]
    )  # fmt: skip
    found = answer(claim_of(Statistic.MEAN_LOSS, "pick", "exhaustive"), held, MATRICES)
    assert found.least.value == pytest.approx((10 + 20 + 5) / 3)
    assert found.cases == 3
    assert "mean of 3 cases" in found.remarks
    assert "without a result: layers (no value)" in found.reservations


def test_few_of_the_papers_matrices_give_no_verdict(records_of):
    claim = claim_of(Statistic.MEAN_LOSS, "pick", "best")
    held = records_of([(label, name, 5, 10.0, 10.0) for name in ("a", "b", "c") for label in ("pick", "best")])
    whole = answer(claim, held, MATRICES)
    assert (whole.covered, whole.reservations) == (1.0, ())
    few = answer(claim, held, MATRICES, {"layers": 7})
    assert few.covered == pytest.approx(3 / 7)
    assert few.reservations == ("rests on 3 of 7 layers",)
    assert judge(claim, few, "v100") == "no verdict"
    assert answer(claim, held, MATRICES, {"layers": 3}) == whole


def test_a_pick_alone_has_no_loss(records_of):
    held = records_of([("pick", "a", 5, 11.0, 10.0)])
    assert (
        "no record of exhaustive" in answer(claim_of(Statistic.MEAN_LOSS, "pick", "exhaustive"), held, MATRICES).missing
    )
    with pytest.raises(ValueError, match="'of' and 'over'"):
        claim_of(Statistic.MEAN_LOSS, "pick")


def test_times_are_compared_at_equal_non_zeros_only(records_of):
    held = records_of(
        [("x", "a", 5, 2.0, None), ("x", "b", 5, 9.0, None), ("x", "c", 7, 1.0, None), ("x", "d", 7, 3.0, None)]
    )
    found = answer(claim_of(Statistic.TIME_SPREAD, "x"), held, MATRICES)
    assert (found.least.value, found.cases) == (pytest.approx(4.5), 4)


def test_numbers_of_configs_range_over_the_cases(records, write):
    rows = [
        records.measurement(
            implementation="stile", source="dnn_layers", matrix=matrix, matrix_kind=MatrixKind.SYNTHETIC, width=width,
            matrix_hash=f"{ord(matrix):064x}", samples_us=[1.0] * 9, config={"levels_used": levels} if levels else {},
        )
        for matrix, width, levels in (("a", 32, 1), ("a", 64, 24), ("b", 32, 3), ("c", 32, None))
    ]  # fmt: skip
    claim = claim_of(Statistic.CONFIG_RANGE, "stile", metric="levels_used")
    found = answer(claim, Records(load_records([write(rows)])), MATRICES)
    assert (found.least.value, found.greatest.value, found.cases) == (1, 24, 3)


def test_search_ratios_range_over_the_matrices(records, write):
    spent = {"a": ((1.0, 2.0), (1.0, 8.0)), "b": ((2.0, 3.0),)}
    rows = [
        records.measurement(
            implementation="stile", label=label, source="dnn_layers", matrix=matrix, matrix_kind=MatrixKind.SYNTHETIC,
            matrix_hash=f"{ord(matrix):064x}", width=32 << place, samples_us=[1.0] * 9, phases_s={"search": seconds},
        )
        for matrix, pairs in spent.items()
        for place, pair in enumerate(pairs)
        for label, seconds in zip(("line", "mlp"), pair, strict=True)
    ]  # fmt: skip
    claim = claim_of(Statistic.SEARCH_RATIO_RANGE, "line", "mlp", phases=("search",))
    found = answer(claim, Records(load_records([write(rows)])), MATRICES)
    assert (found.least.value, found.greatest.value) == pytest.approx((1.5, 4.0))


def test_what_differs_is_told_where_there_is_no_number(records_of):
    held = records_of([("pick", "a", 5, 11.0, None), ("other", "b", 5, 10.0, None)])
    found = answer(claim_of(Statistic.GEOMEAN_SPEEDUP, "pick", "other", differs="kernels of ours"), held, MATRICES)
    assert found.missing == "without a result: layers (no value); kernels of ours"


@pytest.mark.parametrize(("slower", "told"), [(10.2, True), (10.5, False)])
def test_a_gain_that_no_case_has_is_told_in_words(records_of, slower: float, told: bool) -> None:
    held = records_of(
        [("deep", matrix, 5, 10.0, None) for matrix in "ab"]
        + [("flat", "a", 5, 9.0, None), ("flat", "b", 5, slower, None)]
    )
    claim = claim_of(Statistic.GEOMEAN_SPEEDUP, "deep", "flat", nowhere="several levels pay nowhere")
    assert ("several levels pay nowhere" in answer(claim, held, MATRICES).remarks) is told


def test_both_sides_of_a_ratio_are_of_one_sweep_whatever_stands_beside_it(records, tmp_path):
    turn = Baseline(implementation="cusparse_best", config={}, samples_us=[9.0] * 9)

    def held(*sweeps):
        for day, (name, times) in enumerate(sweeps):
            rows = [
                records.measurement(
                    implementation="lo_spmm", label=label, source="dnn_layers", matrix="a", baseline=turn,
                    samples_us=[us] * 9, started_at=records.START + timedelta(days=day),
                )
                for label, us in times.items()
            ]  # fmt: skip
            records.write_records(tmp_path, rows, sweep_name=name)
        return Records(current(load_records([tmp_path], by_sweep=True), by_sweep=True))

    claim = claim_of(Statistic.GEOMEAN_SPEEDUP, "pick", "other")
    own = ("own", {"pick": 4.0, "other": 6.0})
    assert answer(claim, held(own), MATRICES).least.value == pytest.approx(1.5)
    # A later sweep on another day has one side alone.
    assert answer(claim, held(own, ("later", {"pick": 5.0})), MATRICES).least.value == pytest.approx(1.5)


def test_matrices_of_one_pattern_answer_once(records_of):
    held = records_of([("pick", name, 5, us, 8.0) for name, us in (("a", 1.0), ("same", 1.0), ("b", 4.0))])
    held.frame.loc[held.frame["plain"].str.endswith("/same"), "pattern"] = held.frame["pattern"].iloc[0]
    found = answer(claim_of(Statistic.GEOMEAN_SPEEDUP, "pick", "cusparse_best"), held, MATRICES)
    assert (found.least.value, found.cases) == (pytest.approx(4.0), 2)
