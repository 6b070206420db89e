"""A study of predictors: its file, its page, the published one, and the claims that it answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spmark.impls.core.errors import RecordError
from spmark.report.claims.published import load_published
from spmark.report.claims.scorecard import Verdict, scorecard
from spmark.report.claims.study import RatioRow, ScoreRow, Study, StudySource, published_study, read_study
from spmark.report.load.records import load_records
from spmark.report.page.study import learning_curves, model_table, ratio_table, speed_over_rows, write_study_page

PUBLIC, HONEST = "public code", "matrix-disjoint"


def row(model: str, metric: str, *values: float, split: str = PUBLIC, train_rows: int = 0, note: str = "") -> ScoreRow:
    return ScoreRow(
        task="selection", split=split, model=model, metric=metric, values=values, train_rows=train_rows, note=note
    )


STUDY = Study(
    paper="liteform",
    seeds=2,
    command="spmark train liteform --reproduce --seeds 2",
    made_with={"numpy": "2"},
    sources=(StudySource(name="a", url="https://a", sha256="0", gpu="V100", licence="MIT", citation="them"),),
    scores=(
        row("Random Forest", "accuracy", 0.8, 0.9),
        row("Random Forest", "accuracy", 0.7, 0.8, split=HONEST),
        row("QDA", "failed", note="not full rank"),
        row("Random Forest", "accuracy", 0.5, 0.7, train_rows=187),
        row("Random Forest", "accuracy", 0.6, 0.8, train_rows=374),
    ),
    ratios=(
        RatioRow(name="figure7", what="speed", num_rows=(2000, 9000), ratios=(0.5, 2.0), selected=1,
                 selected_geomeans=(1.9, 2.0, 2.1)),
    ),
)  # fmt: skip


def test_a_study_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_study(STUDY.write(tmp_path)) == STUDY


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"surprise": 1}, {"seeds": "many"}])
def test_a_foreign_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = STUDY.write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match="expected a study"):
        read_study(path)
    with pytest.raises(RecordError, match="found no such file"):
        read_study(tmp_path / "nothing.json")


def test_scores_are_means_with_the_ends() -> None:
    found = STUDY.find("selection", PUBLIC, "Random Forest", "accuracy")
    assert found is not None
    assert (found.interval.value, found.interval.low, found.interval.high) == pytest.approx((0.85, 0.8, 0.9))
    near = STUDY.nearest("selection", "Random Forest", "accuracy", 300)
    assert near is not None
    assert near.train_rows == 374
    assert STUDY.find("partitions", PUBLIC, "Random Forest", "accuracy") is None


def test_tables_hold_ours_beside_theirs() -> None:
    published = load_published("liteform")
    frame = model_table(STUDY, published, "selection", PUBLIC).frame.set_index("model")
    assert frame.loc["Random Forest", "accuracy_share"] == pytest.approx(0.85)
    assert frame.loc["Random Forest", "published_accuracy_share"] == pytest.approx(0.8892)
    assert frame["accuracy_share"].isna()["QDA"]
    ratios = ratio_table(STUDY, published).frame
    assert ratios["geomean_speedup"].tolist() == pytest.approx([1.0, 2.0])
    assert ratios["matrices"].tolist() == [2, 1]


def test_figures_draw_these_numbers() -> None:
    data = learning_curves(STUDY, load_published("liteform")).data
    ours = data[(data["label"] == f"ours, {PUBLIC} split") & (data["task"] == "selection")]
    assert ours["accuracy"].tolist() == pytest.approx([0.6, 0.7])
    theirs = data[(data["label"] == "published") & (data["task"] == "partitions")]
    assert theirs["train_rows"].tolist()[0] == 407
    assert speed_over_rows(STUDY.ratios[0], load_published("liteform")).data["below"].tolist() == [True, False]


def test_the_page_names_what_failed(tmp_path: Path) -> None:
    page = write_study_page(STUDY, tmp_path).read_text()
    assert "not full rank" in page
    assert "88.9%" in page
    assert "85.0% [80.0%, 90.0%]" in page


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
