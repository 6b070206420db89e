"""What captions say of bars that are missing."""

from __future__ import annotations

from math import nan

import pandas as pd

from spmark.report.figures.bars import titled_panels, without_bars


def bars(dtype: str, **values: list[float | None]) -> pd.DataFrame:
    """Give the bars of each label in groups a, b, c and so on; None has no row."""
    rows = [
        {"op": "spmm", "dtype": dtype, "group": "abcdefgh"[at], "label": label, "value": value}
        for label, of_label in values.items()
        for at, value in enumerate(of_label)
        if value is not None
    ]
    return pd.DataFrame(rows)


def said(*panels: pd.DataFrame, labels: tuple[str, ...] = ()) -> str:
    return without_bars(titled_panels(pd.concat(panels, ignore_index=True)), "value", labels)


def test_a_label_lacks_bars_in_the_panel_where_it_has_none():
    """In the other panel the label has all bars."""
    whole, lacking = bars("float32", x=[1, 1], y=[1, 1]), bars("float16", x=[1, nan], y=[1, 1])
    assert said(whole, lacking) == " No bar for lack of results: x on b in spmm, float16."
    assert said(whole) == ""


def test_a_label_that_never_ran_on_a_group_lacks_its_bar():
    few = bars("float32", x=[1, None], y=[1, 1])
    assert said(few) == ""
    assert said(few, labels=("x", "y")) == " No bar for lack of results: x on b."
