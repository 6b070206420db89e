"""From labels to a predictor: two random forests, trained with scikit-learn and taken over as arrays."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np

from spmark.impls.core.errors import DatasetError
from spmark.impls.liteform.features import PARTITIONS, SELECTION, SELECTION_BY_WIDTH
from spmark.impls.liteform.forest import Forest
from spmark.impls.liteform.predictor import ForestCard, Predictor
from spmark.studies.liteform.labelled import LabelTable
from spmark.studies.liteform.models import FOREST, fit, model_kinds

_LEAST = 10


def train(labels: LabelTable, card: ForestCard, by_width: bool = False) -> Predictor:
    """Train both models on all labels.

    As in the public code, the selection sees the first width of every matrix, does not know J, and asks for a speed-up
    of 1.1. The number of partitions sees every row in which CELL has this speed-up. Settings and seed are the public
    code's.

    Parameters
    ----------
    labels : LabelTable
    card : ForestCard
        Facts about the labels; rows, features and versions are filled in.
    by_width : bool
        This project's way: the selection sees every row with its J, and asks whether CELL is faster at all.

    Raises
    ------
    DatasetError
        There are too few labels, or all are of one class.
    """
    one, winners = labels.one_per_matrix(), labels.where_cell_wins()
    seen, order = (labels, SELECTION_BY_WIDTH) if by_width else (one, SELECTION)
    wins = seen.faster if by_width else seen.wins
    if one.size < _LEAST or winners.size < _LEAST or wins.all() or not wins.any():
        raise DatasetError(
            f"expected at least {_LEAST} matrices, some of which CELL wins on and some not, found {one.size} with "
            f"{int(wins.sum())} wins; measure more labels"
        )
    forest = model_kinds()[FOREST]
    selection_x, partition_x = seen.selection(order), winners.partition_features()
    selection = fit(forest, selection_x, wins.astype(np.int64))
    partitions = fit(forest, partition_x, winners.partitions.astype(np.int64))
    made_with = {"scikit-learn": version("scikit-learn"), "numpy": version("numpy"), **card.made_with}
    filled = card.model_copy(
        update={
            "rows": {"selection": seen.size, "partitions": winners.size},
            "features": {"selection": order, "partitions": PARTITIONS},
            "made_with": made_with,
        }
    )
    return Predictor(filled, Forest.of(selection, selection_x), Forest.of(partitions, partition_x))
