"""Numbers that rows are made with to six significant digits: the digits beyond are noise of clocks, and do not pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def six_digits(facts: Any) -> Any:
    """Give facts of JSON in which each float is the nearest number of six significant digits.

    Integers, texts and what else there is stay; sequences become lists.
    """
    if isinstance(facts, float):
        return float(f"{facts:.6g}")
    if isinstance(facts, Mapping):
        return {name: six_digits(fact) for name, fact in facts.items()}
    if isinstance(facts, list | tuple):
        return [six_digits(fact) for fact in facts]
    return facts
