from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from spmark.impls.core.devicespec import DeviceKind
from spmark.records.schema import Measurement, Status

FACTS: dict[str, Any] = {
    "case_id": "spmm/dgl/ppi/J32/float32/cusparse/seed0",
    "implementation_version": "0123456789abcdef",
    "op": "spmm",
    "matrix": "ppi",
    "source": "dgl",
    "seed": 0,
    "width": 32,
    "dtype": "float32",
    "device": "nvidia-h200",
    "device_kind": "cuda",
    "implementation": "cusparse",
    "label": "cuSPARSE",
}
TIMED = (Status.OK, Status.IMPLAUSIBLE)
FAILED = tuple(status for status in Status if status not in TIMED)


@pytest.mark.parametrize("status", TIMED)
def test_timed_statuses_carry_samples(status: Status) -> None:
    row = Measurement(**FACTS, status=status, samples_us=[3.5, 3.25])
    assert Measurement.model_validate_json(row.model_dump_json()) == row
    with pytest.raises(ValidationError, match=f"expected samples with status {status}, found none"):
        Measurement(**FACTS, status=status, reason="because")


@pytest.mark.parametrize("status", FAILED)
def test_failures_carry_a_reason_and_no_samples(status: Status) -> None:
    row = Measurement(**FACTS, status=status, reason="because")
    assert Measurement.model_validate_json(row.model_dump_json()) == row
    with pytest.raises(ValidationError, match=f"expected a reason with status {status}"):
        Measurement(**FACTS, status=status)
    with pytest.raises(ValidationError, match=f"no samples with status {status}, found 1"):
        Measurement(**FACTS, status=status, reason="because", samples_us=[1.0])


def test_host_simt_never_carries_samples() -> None:
    facts = FACTS | {"device_kind": DeviceKind.HOST_SIMT}
    assert Measurement(**facts, status=Status.OK).samples_us == []
    with pytest.raises(ValidationError, match="no samples from host-simt"):
        Measurement(**facts, status=Status.OK, samples_us=[1.0])


@pytest.mark.parametrize(
    "change", [{"speedup": 2.0}, {"status": "fine"}, {"dtype": "float64"}, {"schema_version": 3}, {"width": "wide"}]
)
def test_foreign_fields_and_values_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(change))):
        Measurement(**{**FACTS, "status": "ok", "samples_us": [1.0], **change})
