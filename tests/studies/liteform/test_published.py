"""The study of predictors: labels as they are read, splits, metrics, and the published ratios."""

from __future__ import annotations

import numpy as np
import pytest
from label_fakes import HEADER, published_csv

from spmark.impls.liteform.features import PARTITIONS, SELECTION, Features
from spmark.studies.liteform.forests import MAJORITY, SLOW, cosine, cosine_by_matrix, similarity
from spmark.studies.liteform.published import (
    DISJOINT,
    FEW_ROWS,
    PUBLIC,
    overhead_ratios,
    score_models,
    selected_as_published,
    speed_ratios,
)
from spmark.studies.liteform.tables import (
    SPEEDUP,
    disjoint_split,
    numbers,
    partition_numbers,
    read_published,
    where_cell_wins,
)

pytestmark = pytest.mark.full

LABELS = read_published(published_csv(80))


def test_published_labels_are_read_in_our_units() -> None:
    text = f"{HEADER}\nm,10,20,30,3,1,9,2.5,64,4,16,7.5,0.5,0.6,1.2\nm,10,20,30,3,1,9,2.5,512,1,1,7.5,inf,inf,nan\n"
    labels = read_published(text)
    assert labels.cell_us.tolist() == [500, np.inf]
    assert where_cell_wins(labels).width.tolist() == [64]
    assert labels.speedup[0] >= SPEEDUP
    own = Features(10, 20, 30, 3.0, 1, 9, 2.5)
    assert np.array_equal(numbers(labels)[0], own.selection())
    assert np.array_equal(partition_numbers(labels)[0], own.partitions(64))
    assert (len(SELECTION), len(PARTITIONS)) == (7, 8)


def test_the_honest_split_keeps_a_matrix_on_one_side() -> None:
    train, test = disjoint_split(LABELS.matrix, np.random.default_rng(0))
    assert not set(LABELS.matrix[train]) & set(LABELS.matrix[test])
    assert train.size + test.size == len(LABELS)
    assert len(set(LABELS.matrix[train])) == 64


def test_metrics_by_hand() -> None:
    truth, predicted = np.array([1, 1, 1, 4]), np.array([1, 1, 2, 2])
    assert similarity(truth, predicted) == pytest.approx((1 + 1 + 0.5 + 0.5) / 4)
    assert cosine(truth, predicted) == pytest.approx((1 + 1 + 2 + 8) / np.sqrt(19 * 10))
    by_matrix = cosine_by_matrix(np.array(["a", "a", "b", "b"]), truth, predicted)
    assert by_matrix == pytest.approx((1 + 10 / np.sqrt(17 * 8)) / 2)


def test_every_model_is_scored_or_says_why_not() -> None:
    scores = score_models(LABELS, 2, False, lambda _: None)
    models = {score["model"] for score in scores}
    assert len(models) == 11
    for task in ("selection", "partitions"):
        found = {
            score["model"]: score["values"]
            for score in scores
            if (score["task"], score["split"], score["metric"]) == (task, DISJOINT, "accuracy")
        }
        assert len(found["Random Forest"]) == 2
        assert np.mean(found["Random Forest"]) > np.mean(found[MAJORITY]), "what decides is a feature"
    failed = {(s["model"], bool(s["note"])) for s in scores if s["metric"] == "failed"}
    assert failed <= {("QDA", True)}
    slow = [s for s in scores if s["model"] == SLOW and s["metric"] == "accuracy"]
    assert {(s["split"], len(s["values"])) for s in slow} == {(PUBLIC, 1)}
    assert all(str(FEW_ROWS) in s["note"] for s in slow)


def test_published_ratios_by_hand() -> None:
    head = "name,feat_size,num_rows,num_cols,Oracle(ms),LiteForm(ms)\n"
    text = head + "a,32,2000,2000,4,1\na,64,2000,2000,1,1\nb,32,5000,2500,1,4\nsmall,32,1999,9000,1,9\nblank,32,,,1,9\n"
    found = speed_ratios(text)
    assert found.num_rows.tolist() == [2000, 5000]
    assert found.ratio.tolist() == pytest.approx([2, 0.25])
    kept, draws = selected_as_published(found.ratio.to_numpy())
    assert kept == 2, "one is below 0.6, and up to seven come back"
    assert draws == pytest.approx([np.sqrt(0.5)] * 1000)
    head = "name,feat_size,num_rows,num_cols,autotuning_time(s),time_select(s),time_num_parts(s),time_bucket(s)\n"
    seconds = overhead_ratios(head + "a,32,2000,2000,10,1,1,0\na,64,2000,2000,20,1,1,2\n")
    assert seconds.ratio.tolist() == [5]
