"""A frame derived in shares has the columns of one that is derived at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from spmark.report.derive import shares as module
from spmark.report.derive.kept import derived
from spmark.report.derive.shares import joined, shares_of
from spmark.report.load.records import current, load_records
from spmark.report.load.texts import python_texts

MATRICES = [f"s/m{place}" for place in range(7)]


@pytest.fixture
def frame(
    records: ModuleType, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> pd.DataFrame:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    rows = records.sweep(matrices=MATRICES, widths=(32, 64, 128))
    with python_texts():
        return current(load_records([write(rows)]))


@pytest.mark.parametrize("mixed", [False, True], ids=["by matrix", "mixed"])
@pytest.mark.parametrize("rows", [1, 7, 20, 40])
def test_shares_have_whole_matrices_and_derive_the_same(
    frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, rows: int, mixed: bool
) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)
    if mixed:
        frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    with python_texts():
        shares = shares_of(frame)
        assert len(shares) > 1
        assert len(frame) == sum(map(len, shares))
        assert sum(share["matrix"].nunique() for share in shares) == len(MATRICES)
        found = joined([derived(share, "cusparse_best") for share in shares], frame.index)
        expected = derived(frame, "cusparse_best")
    assert found.columns.keys() == expected.columns.keys()
    assert found.digest != expected.digest
    pd.testing.assert_frame_equal(frame.assign(**found.columns), frame.assign(**expected.columns))
    assert max(map(len, shares)) <= max(rows, len(frame) // len(MATRICES)) + len(frame) // len(MATRICES)


def test_a_small_frame_is_its_only_share(frame: pd.DataFrame) -> None:
    (only,) = shares_of(frame)
    assert only is frame
    of_frame = derived(frame, None)
    assert joined([of_frame], frame.index) is of_frame
