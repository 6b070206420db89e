"""Floats of facts get six significant digits; all else stays."""

from __future__ import annotations

import pytest

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


def test_facts() -> None:
    facts = {"a": 1 / 3, "b": (2 / 3, 12345678), "c": {"d": 1e-9 / 3}, "e": "0.1234567", "f": None}
    rounded = {"a": 0.333333, "b": [0.666667, 12345678], "c": {"d": 3.33333e-10}, "e": "0.1234567", "f": None}
    assert six_digits(facts) == rounded
