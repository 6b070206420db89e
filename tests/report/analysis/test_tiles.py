"""What a calibration printed, and the claims that it answers."""

from __future__ import annotations

import json

import pytest

from spmark.impls.core.errors import RecordError
from spmark.report.analysis.tiles import published_agreement, read_agreement
from spmark.report.claims import answers
from spmark.report.claims.answers import Records, answer
from spmark.report.claims.published import load_published
from spmark.report.records import load_records

NAMES = ("operator", "dtype", "block tiles", "tiles held out", "Pearson", "RMSE, us")
ROWS = (("spmm", "float16", 20, 60, 0.96, 0.2), ("sddmm", "float16", 3, 40, 0.99, 0.1))
PRINTED = {"path": "stile-test-gpu.json", "agreement": [dict(zip(NAMES, row, strict=True)) for row in ROWS]}


@pytest.fixture
def printed(tmp_path):
    path = tmp_path / "tiles.json"
    path.write_text(json.dumps(PRINTED))
    return path


def test_metrics_are_in_their_units(printed):
    spmm, sddmm = read_agreement(printed)
    assert (spmm.metric("pearson"), spmm.metric("rmse_ms"), spmm.metric("count")) == (0.96, pytest.approx(2e-4), 60)
    assert spmm.metric("recall") is None
    assert sddmm.operator == "sddmm"


def test_the_bound_is_the_greatest_relative_error(printed):
    rows = [PRINTED["agreement"][0] | {"predicted and measured, us": [[9.0, 10.0], [6.0, 5.0], [4.0, 4.0]]}]
    printed.write_text(json.dumps({"agreement": [*rows, PRINTED["agreement"][1]]}))
    spmm, sddmm = read_agreement(printed)
    assert spmm.metric("bound") == pytest.approx(20)
    assert sddmm.metric("bound") is None


@pytest.mark.parametrize("text", ["[]", "{}", '{"agreement": [{"operator": "spmm"}]}', "\x00"])
def test_another_file_is_refused(printed, text):
    printed.write_text(text)
    with pytest.raises(RecordError, match="that the calibration of a cost model prints"):
        read_agreement(printed)


def test_a_device_without_a_calibration_has_none():
    assert published_agreement("no-such-gpu") == ()


def test_claims_on_tiles_are_answered_by_operator(printed, records, write, monkeypatch):
    monkeypatch.setattr(answers, "published_agreement", lambda device: read_agreement(printed))
    published = load_published("stile")
    claims = {claim.id: claim for claim in published.claims}
    held = Records(load_records([write([records.measurement(implementation="stile", samples_us=[1.0])])]))
    found = answer(claims["cost-pearson-1d"], held, published.matrices)
    assert (found.least.value, found.cases) == (0.99, 40)
    assert answer(claims["cost-rmse-ell"], held, published.matrices).least.value == pytest.approx(2e-4)


def test_without_a_calibration_the_claim_says_what_is_missing(records, write):
    published = load_published("stile")
    (claim,) = (claim for claim in published.claims if claim.id == "cost-pearson-ell")
    held = Records(load_records([write([records.measurement(implementation="stile", samples_us=[1.0])])]))
    assert "no calibration of test-gpu" in answer(claim, held, published.matrices).missing
