"""A study of predictors: its file, the published one, and the claims that it answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spmark.impls.core.errors import RecordError
from spmark.report.claims.scorecard import Verdict, scorecard
from spmark.report.claims.study import Study, published_study, read_study
from spmark.report.records import load_records

PUBLIC = "public code"


def test_a_study_is_read_as_it_was_written(study: Study, tmp_path: Path) -> None:
    assert read_study(study.write(tmp_path)) == study


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"surprise": 1}, {"seeds": "many"}])
def test_a_foreign_file_is_refused(study: Study, tmp_path: Path, change: dict[str, object]) -> None:
    path = study.write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match="expected a study"):
        read_study(path)
    with pytest.raises(RecordError, match="found no such file"):
        read_study(tmp_path / "nothing.json")


def test_scores_are_means_with_the_ends(study: Study) -> None:
    found = study.find("selection", PUBLIC, "Random Forest", "accuracy")
    assert found is not None
    assert (found.interval.value, found.interval.low, found.interval.high) == pytest.approx((0.85, 0.8, 0.9))
    near = study.nearest("selection", "Random Forest", "accuracy", 300)
    assert near is not None
    assert near.train_rows == 374
    assert study.find("partitions", PUBLIC, "Random Forest", "accuracy") is None


def test_the_published_study_is_within_reach_of_the_paper() -> None:
    study = published_study("liteform")
    assert study is not None
    assert study.seeds == 20
    for task, theirs in (("selection", 0.8892), ("partitions", 0.8730)):
        found = study.find(task, PUBLIC, "Random Forest", "accuracy")
        assert found is not None
        assert len(found.values) == 20
        assert abs(found.interval.value - theirs) < 0.025
    figure7 = next(ratio for ratio in study.ratios if ratio.name == "figure7")
    assert (len(figure7.ratios), figure7.selected) == (1385, 1351)
    assert figure7.geomean == pytest.approx(0.972, abs=5e-4)
    assert published_study("stile") is None


def test_claims_about_predictors_are_answered_beside_records_of_the_method(records, write) -> None:
    def cards(implementation: str):
        frame = load_records([write([records.measurement(implementation=implementation, samples_us=[1.0] * 8)])])
        return scorecard(frame, ["liteform"]).set_index("claim")

    assert cards("gespmm").loc["selection-accuracy", "verdict"] == Verdict.NOT_RUN.value
    answered = cards("liteform")
    assert answered.loc["selection-accuracy", "verdict"] == Verdict.REPRODUCED.value
    assert answered.loc["selection-accuracy", "ours_value"] == pytest.approx(88.37, abs=0.01)
    assert answered.loc["table5.qda.accuracy", "verdict"] == Verdict.NOT_RUN.value
    assert answered.loc["table5.gaussian-process.accuracy", "verdict"] == Verdict.NO_VERDICT.value
    assert answered.loc["figure10-partitions.4071-samples.accuracy", "verdict"] == Verdict.REPRODUCED.value
