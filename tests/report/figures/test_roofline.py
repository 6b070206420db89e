"""Shares of the floor, by hand."""

from __future__ import annotations

import pytest

from spmark.report.figures.roofline import roofline_share


def test_shares_of_the_floor(derived):
    # 4 MB at 4 TB/s take 1 us.
    data = roofline_share(derived).data.set_index(["matrix", "label"])
    assert data.loc[("ogb/large", "gespmm"), ["least", "greatest"]].tolist() == pytest.approx([1 / 40, 1 / 20])
    assert data.loc[("ogb/large", "gespmm"), "share"] == pytest.approx(800**-0.5)
