"""How good predictors trained on one's own labels are on matrices that they have not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from spmark.impls.liteform.predictor import ForestCard, Predictor
from spmark.studies.liteform.labelled import LabelTable, disjoint_split
from spmark.studies.liteform.labels import MatrixLabels
from spmark.studies.liteform.measured import partition_regret, table_of
from spmark.studies.liteform.models import balanced_accuracy
from spmark.studies.liteform.published import selection_regret
from spmark.studies.liteform.training import train


class OverSplits(NamedTuple):
    """A number over several splits."""

    mean: float
    least: float
    greatest: float


def held_out(rows: Sequence[MatrixLabels], card: ForestCard, splits: int = 10) -> dict[str, OverSplits]:
    """Train on four fifths of the matrices and predict the others, several times.

    Parameters
    ----------
    rows : sequence of MatrixLabels
        Labels from `spmark.studies.liteform.measured.read_labels`.
    card : ForestCard
    splits : int
        Seeds of `disjoint_split`, from 0.

    Returns
    -------
    dict
        Accuracies, balanced accuracies and regrets in time of both models, each beside that of an answer that is
        always the same; NaN where a split has no times.

    Raises
    ------
    DatasetError
        `train` raises it.
    """
    labels = table_of(rows)
    values_of: dict[str, list[float]] = defaultdict(list)
    for seed in range(splits):
        on_train, on_test = disjoint_split(labels.matrix, np.random.default_rng(seed))
        predictor = train(labels.take(on_train), card, by_width=True)
        test = labels.take(on_test)
        names = {str(name) for name in test.matrix}
        seen = [row for row in rows if f"{row.matrix} {row.dtype}" in names]
        for name, value in (*_selection(predictor, test), *_partitions(predictor, test, seen)):
            values_of[name].append(value)
    return {name: OverSplits(float(np.mean(values)), min(values), max(values)) for name, values in values_of.items()}


def _selection(predictor: Predictor, test: LabelTable) -> Iterator[tuple[str, float]]:
    wins = test.faster.astype(np.int64)
    samples = test.selection(predictor.card.features["selection"])
    said = np.array([predictor.selection.predict(sample) for sample in samples])
    yield "selection, accuracy", float(np.mean(said == wins))
    yield "selection, balanced accuracy", balanced_accuracy(wins, said)
    yield "selection, commonest label", float(max(wins.mean(), 1 - wins.mean()))
    yield "selection, regret", selection_regret(test, said.astype(np.bool_))
    yield "selection, regret of the paper's bar", selection_regret(test, test.wins)
    yield "selection, regret of always CELL", selection_regret(test, np.ones(test.size, np.bool_))


def _partitions(predictor: Predictor, test: LabelTable, rows: Sequence[MatrixLabels]) -> Iterator[tuple[str, float]]:
    winners = test.where_cell_wins()
    if winners.size:
        truth = winners.partitions.astype(np.int64)
        said = np.array([predictor.partitions.predict(sample) for sample in winners.partition_features()])
        yield "partitions, accuracy", float(np.mean(said == truth))
        yield "partitions, balanced accuracy", balanced_accuracy(truth, said)
        yield "partitions, share of one", float(np.mean(truth == 1))
    yield "partitions, regret", partition_regret(rows, lambda f, j: int(predictor.partitions.predict(f.partitions(j))))
    yield "partitions, regret of one", partition_regret(rows, lambda *_: 1)
