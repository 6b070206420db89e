"""From labels to a predictor: two random forests, trained with scikit-learn and taken over as arrays."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np

from spmark.impls.core.errors import DatasetError
from spmark.impls.liteform.features import PARTITIONS, SELECTION
from spmark.impls.liteform.forest import Forest
from spmark.impls.liteform.labelled import Labels
from spmark.impls.liteform.models import FOREST, fit, model_kinds
from spmark.impls.liteform.predictor import Card, Predictor

_LEAST = 10


def train(labels: Labels, card: Card) -> Predictor:
    """Train both models on all labels.

    The selection sees the first width of every matrix and the number of partitions every row in which CELL wins, as in
    the public code; its settings are theirs, seed included.

    Parameters
    ----------
    labels : Labels
    card : Card
        What is known of the labels; rows, features and versions are filled in.

    Raises
    ------
    DatasetError
        Too few labels, or all of one class.
    """
    one, winners = labels.one_per_matrix(), labels.where_cell_wins()
    if one.size < _LEAST or winners.size < _LEAST or one.wins.all() or not one.wins.any():
        raise DatasetError(
            f"expected at least {_LEAST} matrices, some of which CELL wins on and some not, found {one.size} with "
            f"{int(one.wins.sum())} wins; measure more labels"
        )
    forest = model_kinds()[FOREST]
    selection_x, partition_x = one.selection(), winners.partition_features()
    selection = fit(forest, selection_x, one.wins.astype(np.int64))
    partitions = fit(forest, partition_x, winners.partitions.astype(np.int64))
    made_with = {"scikit-learn": version("scikit-learn"), "numpy": version("numpy"), **card.made_with}
    filled = card.model_copy(
        update={
            "rows": {"selection": one.size, "partitions": winners.size},
            "features": {"selection": SELECTION, "partitions": PARTITIONS},
            "made_with": made_with,
        }
    )
    return Predictor(filled, Forest.of(selection, selection_x), Forest.of(partitions, partition_x))
