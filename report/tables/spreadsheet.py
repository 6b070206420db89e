"""CSV that a spreadsheet shows and does not run: text that would be a formula begins with an apostrophe.

Names in a report come out of records, which others may have made.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_of(frame: pd.DataFrame) -> str:
    """Give a frame as CSV without its index; numbers are written in full, also where text holds them."""
    shown = frame.copy(deep=False)
    for name in frame.select_dtypes(["object", "str"]):
        # As objects: pandas would turn whole numbers beside a missing one into fractions.
        shown[name] = pd.Series([_as_text(value) for value in frame[name]], frame.index, dtype=object)
    return str(shown.rename(columns=_as_text).to_csv(index=False, lineterminator="\n"))


def _as_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    marked = f"'{value}" if value.startswith(_FORMULA) and not _is_number(value) else value
    # A carriage return alone ends a row for some readers, and is not put in quotes.
    return marked.replace("\r\n", "\n").replace("\r", "\n")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
