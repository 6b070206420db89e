"""What searches saw: reading, and what belongs to which case, with numbers by hand."""

from __future__ import annotations

import math

import pytest

from spmark.report.derive.cases import derive
from spmark.report.load.candidates import load_candidates, measured
from spmark.report.load.records import load_records


def test_the_newer_row_of_a_config_counts(searched_folder):
    frame = load_candidates([searched_folder])
    assert len(frame) == 4 + 3 + 2 + 1
    assert frame["predicted"].max() == pytest.approx(40e-6)
    assert math.isnan(frame.loc[frame["candidate"].map(lambda c: c["predicted_us"]) == 15.0, "seen_us"].iloc[0])


def test_only_measured_candidates_of_cases_with_a_result_are_kept(seen):
    assert sorted(seen["matrix"].value_counts().items()) == [("ogb/a", 4), ("ogb/b", 2), ("ogb/c", 2)]
    assert seen["seen_us"].max() == 60.0


def test_no_side_file_is_no_candidate(records, write):
    place = write([records.measurement(samples_us=[1.0])])
    assert load_candidates([place]).empty
    assert measured(derive(load_records([place]), None), load_candidates([place])).empty
