"""Numbers that are written with six significant digits: the digits beyond are noise of clocks, and do not pack."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def six_digits(number: float) -> float:
    """Give the nearest number of six significant digits."""
    return float(f"{number:.6g}")


SixDigits = Annotated[float, AfterValidator(six_digits)]
