"""The bounds of dense pieces against the records that they are fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spmark.impls.liteform.dense import LEAST_LOADS, MOST_READS, alone_of
from spmark.report.analysis.cases import derive
from spmark.report.records import current, load_records

RECORDS = Path(__file__).parents[2] / "report/reference/h200/liteform_dense_fit"
SMS = 132
BY_FOUR, BY_SIXTEEN = "pieces_alone_4", "pieces_alone_16"


@pytest.fixture(scope="module")
def times() -> pd.DataFrame:
    """Give a row for each matrix and J: times of each label, what windows read, and the format without pieces."""
    cases = derive(current(load_records([RECORDS])), "cusparse_best").set_index(["matrix", "width"])
    found = cases.pivot(columns="label", values="median_us")
    pieces, never = (cases[cases["label"] == label].reindex(found.index) for label in (BY_FOUR, "never"))
    found["reads"] = pieces["config"].map(lambda config: config["reads"])
    found["format"] = never["config"].map(lambda config: config["format"])
    widths = found.index.get_level_values("width")
    found["loads"] = never["nnz"] * widths
    by = [alone_of(-(-int(rows) // 16), int(width), SMS) for rows, width in zip(never["num_rows"], widths, strict=True)]
    found["chosen"] = np.where(np.array(by) == 4, found[BY_FOUR], found[BY_SIXTEEN])
    return found


def test_pieces_win_within_the_bounds_and_hardly_ever_beyond(times: pd.DataFrame) -> None:
    competing = times[times["format"] != "bsr"]  # where blocks of BSR are chosen, pieces are not asked
    gains = competing["never"] / competing["chosen"]
    within = (competing["reads"] <= MOST_READS) & (competing["loads"] >= LEAST_LOADS)
    assert len(times) == 102
    assert within.sum() == 22
    assert np.exp(np.log(gains[within]).mean()) > 1.25
    assert gains[within].min() > 0.95
    assert gains[~within].max() < 1.15
    assert np.exp(np.log(gains[~within]).mean()) < 0.85
