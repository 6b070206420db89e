"""Roofs by hand: which bound holds, on which side of 6 us a case lies, and where a share ends."""

from __future__ import annotations

from math import isnan, sqrt

import pytest

from spmark.impls.core.problem import DType
from spmark.records.schema import ProblemFacts
from spmark.report.analysis.cases import derive
from spmark.report.analysis.roof import Bound, frozen_times, mean_shares, measured_times, under_roof
from spmark.report.records import load_records

CALIBRATED = {
    "cold_launch_s": 2e-6,
    "cold_load_s": 0.5e-6,
    "l2_gather_bytes_per_s": {128: 4e12, 512: 8e12},
    "table_gather_bytes_per_s": {25 << 20: 8e12, 100 << 20: 4e12},
}


@pytest.fixture
def derived_of(records, write):
    def derived(*rows, device="nvidia-h200", **rates):
        spec = records.device_spec(device).model_copy(update=rates)
        digest = records.environment_of(spec).digest
        made = [records.measurement(device=device, environment=digest, **row) for row in rows]
        return derive(load_records([write(made, spec)]), None)

    return derived


def row(matrix, nnz, megabytes, us, dtype=DType.FLOAT32, num_cols=900, label="gespmm"):
    facts = ProblemFacts(
        num_rows=1000, num_cols=num_cols, nnz=nnz, longest_row=9, flops=2 * nnz * 128,
        compulsory_bytes=int(megabytes * 1_000_000),
    )  # fmt: skip
    return {"matrix": matrix, "dtype": dtype, "problem": facts, "samples_us": [us] * 9, "label": label}


def test_the_frozen_roof_by_hand(derived_of):
    rows = (
        row("tiny", 1_000, 0.8510, 7.4),  # 0.2 us of bytes under 3.5 us of launch
        row("wide", 1_000, 42.55, 27.0),  # 10 us of bytes
        row("dense", 1_000_000, 4.255, 20.0),  # 512 MB out of L2 take 60.24 us
        row("half", 1_000_000, 4.255, 100.0, DType.FLOAT16),
    )
    derived = derived_of(*rows)
    cases = under_roof(derived, frozen_times(derived)).set_index("matrix")
    assert cases["roof_us"].to_dict() == pytest.approx(
        {"ogb/tiny": 3.7, "ogb/wide": 13.5, "ogb/dense": 3.5 + 512 / 8.5, "ogb/half": 3.5 + 256 / 8.5}
    )
    assert cases["bound"].tolist() == [Bound.LAUNCH, Bound.BYTES, Bound.GATHER, Bound.GATHER]
    assert cases["side"].tolist() == ["under 6 µs", "over 6 µs", "over 6 µs", "over 6 µs"]
    # What finds its rows in L1 passes the roof, and its share is 1.
    assert cases["share"].tolist() == pytest.approx([0.5, 0.5, 1.0, 0.01 * (3.5 + 256 / 8.5)])
    assert cases["passes"].tolist() == [False, False, True, False]


def test_the_frozen_roof_is_of_one_gpu(derived_of):
    derived = derived_of(row("wide", 1_000, 42.55, 27.0), device="other-gpu")
    assert frozen_times(derived).isna().all(axis=None)
    assert under_roof(derived, frozen_times(derived)).empty


def test_measured_rates_by_hand(derived_of):
    # Rows of 128 floats are read at 8 TB/s, of 128 halves at the rate between those of 128 and 512 bytes.
    rows = (
        row("small", 1_000, 4.0, 8.0),
        row("dense", 1_000_000, 4.0, 100.0),
        row("half", 1_000_000, 4.0, 100.0, DType.FLOAT16),
        row("large", 1_000_000, 4.0, 500.0, num_cols=204_800),  # 100 MB of B: half the rate
    )
    derived = derived_of(*rows, **CALIBRATED)
    cases = under_roof(derived, measured_times(derived)).set_index("matrix")
    assert cases["roof_us"].tolist() == pytest.approx([3 + 1, 3 + 512 / 8, 3 + 256 / 6, 3 + 512 / 4])
    assert cases["bound"].tolist() == [Bound.LAUNCH, Bound.GATHER, Bound.GATHER, Bound.BEYOND]


def test_a_launch_that_nobody_measured_is_left_out(derived_of):
    derived = derived_of(row("dense", 1_000_000, 4.0, 100.0), l2_gather_bytes_per_s={128: 400e12})
    times = measured_times(derived)
    assert times[[Bound.LAUNCH, Bound.BEYOND]].isna().all(axis=None)
    (case,) = under_roof(derived, times).to_dict("records")
    # 256 Mflop at 60 Tflop/s take longer than 4 MB at 4 TB/s.
    assert (case["bound"], case["roof_us"]) == (Bound.FLOPS, pytest.approx(256 / 60))


def test_without_the_rate_of_gathering_there_is_no_roof(derived_of):
    derived = derived_of(row("dense", 1_000_000, 4.0, 100.0), **(CALIBRATED | {"l2_gather_bytes_per_s": {}}))
    assert measured_times(derived).isna().all(axis=None)
    assert under_roof(derived, measured_times(derived)).empty


def test_mean_shares_are_over_the_cases_of_a_side(derived_of):
    derived = derived_of(
        row("a", 1_000, 42.55, 13.5), row("b", 1_000, 42.55, 54.0), row("tiny", 1_000, 0.851, 7.4),
        row("a", 1_000, 42.55, 27.0, label="other"),
    )  # fmt: skip
    means = mean_shares(under_roof(derived, frozen_times(derived))).set_index(["label", "side"])
    assert means["roof_share"].to_dict() == pytest.approx(
        {("gespmm", "over 6 µs"): sqrt(0.25), ("gespmm", "under 6 µs"): 0.5, ("other", "over 6 µs"): 0.5}
    )
    assert means.loc[("gespmm", "over 6 µs"), "cases"] == 2
    low, high = means.loc[("gespmm", "over 6 µs"), ["roof_share_low", "roof_share_high"]]
    assert low <= 0.5 <= high
    assert isnan(means.loc[("other", "over 6 µs"), "roof_share_low"])


def test_what_has_no_result_has_no_roof(records, derived_of):
    failed = {"status": "timeout", "matrix": "late", "reason": "expected an end, found none"}
    derived = derived_of(failed, row("wide", 1_000, 42.55, 27.0))
    assert under_roof(derived, frozen_times(derived))["matrix"].tolist() == ["ogb/wide"]
