"""Floats of facts get six significant digits; all else stays."""

from __future__ import annotations

from spmark.records.sixdigits import six_digits


def test_facts() -> None:
    facts = {"a": 1 / 3, "b": (2 / 3, 12345678), "c": {"d": 1e-9 / 3}, "e": "0.1234567", "f": None}
    rounded = {"a": 0.333333, "b": [0.666667, 12345678], "c": {"d": 3.33333e-10}, "e": "0.1234567", "f": None}
    assert six_digits(facts) == rounded
