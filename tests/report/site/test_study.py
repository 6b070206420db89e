"""The page of a study of predictors: tables, figures and what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmark.report.claims.published import load_published
from spmark.report.claims.study import Study
from spmark.report.site.study import learning_curves, model_table, ratio_table, speed_over_rows, write_study_page

PUBLIC = "public code"


def test_tables_hold_ours_beside_theirs(study: Study) -> None:
    published = load_published("liteform")
    frame = model_table(study, published, "selection", PUBLIC).frame.set_index("model")
    assert frame.loc["Random Forest", "accuracy_share"] == pytest.approx(0.85)
    assert frame.loc["Random Forest", "published_accuracy_share"] == pytest.approx(0.8892)
    assert frame["accuracy_share"].isna()["QDA"]
    ratios = ratio_table(study, published).frame
    assert ratios["geomean_speedup"].tolist() == pytest.approx([1.0, 2.0])
    assert ratios["matrices"].tolist() == [2, 1]


def test_figures_draw_these_numbers(study: Study) -> None:
    data = learning_curves(study, load_published("liteform")).data
    ours = data[(data["label"] == f"ours, {PUBLIC} split") & (data["task"] == "selection")]
    assert ours["accuracy"].tolist() == pytest.approx([0.6, 0.7])
    theirs = data[(data["label"] == "published") & (data["task"] == "partitions")]
    assert theirs["train_rows"].tolist()[0] == 407
    assert speed_over_rows(study.ratios[0], load_published("liteform")).data["below"].tolist() == [True, False]


def test_the_page_names_what_failed(study: Study, tmp_path: Path) -> None:
    page = write_study_page(study, tmp_path).read_text()
    assert "not full rank" in page
    assert "88.9%" in page
    assert "85.0% [80.0%, 90.0%]" in page
