"""What searches saw: reading, what belongs to which case, predictions and choices, all with numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spmark.impls.core.record import CandidateRow, Status
from spmark.impls.core.recordfile import RecordFile
from spmark.report.derive.cases import derive
from spmark.report.figures.predictions import agreement, predicted, predicted_times
from spmark.report.load.candidates import load_candidates, measured
from spmark.report.load.records import load_records
from spmark.report.page.site import write_report
from spmark.report.tables.choices import choices

# Matrix: (format, predicted, measured) of every plan; two schedules share a prediction.
SEEN = {
    "a": [("mixed", 4.0, 5.0), ("mixed", 4.0, 4.5), ("blocks", 9.0, 9.0), ("other", 7.0, 6.0)],
    "b": [("mixed", 11.0, 10.0), ("blocks", 20.0, 30.0), ("other", 15.0, None)],
    "c": [("other", 40.0, 50.0), ("mixed", 30.0, 60.0)],
}


@pytest.fixture
def folder(records, write):
    rows = [
        records.measurement(implementation="stile", matrix=name, matrix_hash=f"{i:064x}", samples_us=[9.0] * 8)
        for i, name in enumerate(SEEN)
    ]
    rows.append(records.measurement(implementation="stile", matrix="failed", status=Status.TIMEOUT))
    place = write(rows)
    environment = load_records([place])["environment"].iloc[0]
    with RecordFile(place / "candidates.jsonl") as file:
        for row in rows:
            plans = SEEN.get(row.matrix, [("mixed", 1.0, 1.0)])
            for schedule, (formats, us, seen_us) in enumerate(plans):
                config = {"formats": formats, "predicted_us": us, "stages": schedule, "fixed": "same"}
                samples = [] if seen_us is None else [seen_us / 2, seen_us, seen_us * 9]
                for repeat in (1.0, us * 1e-6):
                    file.append(
                        CandidateRow(
                            case_id=row.case_id, implementation_version=row.implementation_version,
                            environment=environment, config=config, predicted=repeat, samples_us=samples,
                        )
                    )  # fmt: skip
    return place


@pytest.fixture
def seen(folder):
    return measured(derive(load_records([folder]), None), load_candidates([folder]))


def test_the_newer_row_of_a_config_counts(folder):
    frame = load_candidates([folder])
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


def test_of_one_prediction_the_fastest_plan_counts(seen):
    plans = predicted(seen)
    assert len(plans) == 7
    assert plans.loc[plans["predicted_us"] == 4.0, "measured_us"].tolist() == [4.5]


def test_agreement_by_hand(seen):
    (row,) = agreement(predicted(seen)).to_dict("records")
    x, y = np.array([4.0, 9, 7, 11, 20, 40, 30]), np.array([4.5, 9, 6, 10, 30, 50, 60])
    assert (row["cases"], row["plans"]) == (3, 7)
    assert row["pearson_score"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert row["rmse_us"] == pytest.approx(np.sqrt(((x - y) ** 2).mean()))
    assert row["bias_ratio"] == pytest.approx(np.exp(np.log(x / y).mean()))


def test_two_plans_have_no_correlation(seen):
    assert agreement(predicted(seen[seen["matrix"] == "ogb/c"])).empty


def test_predicted_times_are_drawn_with_their_agreement(seen):
    plot = predicted_times(seen)
    assert "7 plans of 3 cases" in plot.caption
    assert sorted(plot.data["measured_us"]) == [4.5, 6, 9, 10, 30, 50, 60]


def test_a_choice_is_worth_what_the_best_other_takes_longer(seen):
    found = choices(seen).set_index(["choice", "chosen"])
    assert set(found.index.get_level_values("choice")) == {"formats"}
    mixed = found.loc[("formats", "mixed")]
    assert (mixed["cases"], mixed["matrices"]) == (2, 2)
    assert mixed["over_next_speedup"] == pytest.approx(math.sqrt(6 / 4.5 * 3))
    assert mixed["greatest_speedup"] == pytest.approx(3)
    assert found.loc[("formats", "other"), "over_next_speedup"] == pytest.approx(1.2)


def test_the_page_holds_what_searches_saw(folder, tmp_path):
    write_report([folder], tmp_path / "site")
    for name in ("choices", "agreement"):
        assert (tmp_path / "site" / "tables" / f"test-gpu-{name}.csv").is_file()
    assert (tmp_path / "site" / "figures" / "test-gpu-predicted-times.png").is_file()
