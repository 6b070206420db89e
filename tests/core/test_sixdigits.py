"""Times, errors and scores are written with six digits; samples of single launches as they were taken."""

from __future__ import annotations

import json

import pytest

from spmark.impls.core.record import SearchFacts
from spmark.impls.core.sixdigits import six_digits


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (2.0400000736117363, 2.04),
        (1.4224671046905553e-07, 1.42247e-07),
        (123456.78, 123457.0),
        (1234567.8, 1234570.0),
        (-0.8806179775280899, -0.880618),
        (0.0, 0.0),
        (1e308, 1e308),
    ],
)
def test_digits(number: float, rounded: float) -> None:
    assert six_digits(number) == rounded
    assert six_digits(rounded) == rounded


def test_what_is_written_has_six_digits() -> None:
    facts = SearchFacts(candidates=1, compiled=1, measured=1, cores=1, compile_s=0.6314706960000009, run_s=1 / 3)
    written = json.loads(facts.model_dump_json())
    assert (written["compile_s"], written["run_s"]) == (0.631471, 0.333333)
    assert SearchFacts.model_validate(written) == facts
