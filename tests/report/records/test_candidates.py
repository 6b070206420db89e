"""What searches saw: reading, and what belongs to which case, with numbers by hand."""

from __future__ import annotations

import math

import pytest
from pandas.testing import assert_frame_equal

from spmark.records.rowfile import RecordFile
from spmark.records.schema import CandidateRow
from spmark.report.analysis.cases import derive
from spmark.report.candidates import load_candidates, measured
from spmark.report.records import load_records


def test_the_newer_row_of_a_config_counts(searched_folder):
    frame = load_candidates([searched_folder])
    assert len(frame) == 4 + 3 + 2 + 1
    assert frame["predicted"].max() == pytest.approx(40e-6)
    assert math.isnan(frame.loc[frame["candidate"].map(lambda c: c["predicted_us"]) == 15.0, "seen_us"].iloc[0])


def test_only_measured_candidates_of_cases_with_a_result_are_kept(seen):
    assert sorted(seen["matrix"].value_counts().items()) == [("ogb/a", 4), ("ogb/b", 2), ("ogb/c", 2)]
    assert seen["seen_us"].max() == 60.0


def test_of_records_only_what_can_be_used_is_read(searched_folder, seen):
    records = load_records([searched_folder])
    of_records = load_candidates([searched_folder], records)
    assert (of_records["seen_us"] > 0).all()
    assert_frame_equal(measured(derive(records, None), of_records), seen)
    assert load_candidates([searched_folder], records[records["matrix"] == "ogb/b"])["candidate"].map(
        lambda config: config["formats"]
    ).to_list() == ["mixed", "blocks"]
    assert load_candidates([searched_folder], records.iloc[:0]).empty


def test_candidates_of_a_name_that_stands_for_two_patterns_belong_to_neither(records, write):
    """A file that was replaced has records of both patterns, and a candidate does not say which was searched."""
    rows = [records.measurement(samples_us=[1.0], matrix_hash=pattern * 64) for pattern in "ab"]
    place = write(rows)
    about = {"case_id": rows[0].case_id, "implementation_version": rows[0].spec.implementation_version}
    about["environment"] = rows[0].environment
    with RecordFile(place / "candidates.jsonl") as file:
        file.append(CandidateRow(**about, config={"a": 1}, samples_us=[2.0]))
    frame = load_records([place])
    assert len(frame) == 2
    assert measured(derive(frame, None), load_candidates([place])).empty
    assert len(measured(derive(frame[:1], None), load_candidates([place]))) == 1


@pytest.mark.parametrize("key", [8, [8, {"a": 1}]])
def test_a_newer_row_without_times_replaces_an_older_one(key, records, write):
    place = write([records.measurement(samples_us=[1.0])])
    (row,) = load_records([place]).to_dict("records")
    about = {name: row[name] for name in ("case_id", "implementation_version", "environment")}
    with RecordFile(place / "candidates.jsonl") as file:
        for config, samples_us in (({"a": 1, "b": key}, [2.0]), ({"b": 9}, [3.0]), ({"b": key, "a": 1}, [])):
            file.append(CandidateRow(**about, config=config, samples_us=samples_us))
    assert load_candidates([place])["candidate"].to_list() == [{"b": 9}, {"b": key, "a": 1}]
    assert load_candidates([place], load_records([place]))["seen_us"].to_list() == [2.0, 3.0], "timed ones alone"
    (place / "searched_again").mkdir()
    for name in ("records.jsonl", "environments.jsonl"):
        (place / "searched_again" / name).write_bytes((place / name).read_bytes())
    with RecordFile(place / "searched_again" / "candidates.jsonl") as file:
        file.append(CandidateRow(**about, config={"b": key, "a": 1}, samples_us=[4.0]))
    assert load_candidates([place], load_records([place]))["seen_us"].to_list() == [3.0, 4.0], "of the later folder"


def test_no_side_file_is_no_candidate(records, write):
    place = write([records.measurement(samples_us=[1.0])])
    assert load_candidates([place]).empty
    assert measured(derive(load_records([place]), None), load_candidates([place])).empty
