"""From labels to a rank model: LightGBM's lambdarank, taken over as plain lists (LO-SpMM, section 3.5).

The paper names LambdaMART without settings. Here they are LightGBM's usual ones, shortened for some hundred problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.lo_spmm.rank import FEATURES, RankCard, RankModel, Trees
from spmark.impls.lo_spmm.tuning import RANKED
from spmark.studies.lo_spmm.labels import TileLabels
from spmark.studies.orders import kendall, ranking_trees

LEVELS = 16
"""Grades of relevance: the best time over a candidate's, rounded down to sixteenths."""
_TREES = 150
_FOLDS = 5
_LEAST = 20
_SETTINGS = {"lambdarank_truncation_level": 20, "learning_rate": 0.1, "min_data_in_leaf": 20}
Group = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Features (n, 11) and times (n,) of one problem's candidates."""


def train(rows: Sequence[TileLabels], about: Mapping[str, str], command: str) -> RankModel:
    """Train on all problems; the card's scores are of models that each leave out a fifth of the problems.

    Parameters
    ----------
    rows : sequence of TileLabels
    about : mapping
        Fields of the card: the model's ``name``, and ``gpu`` and ``labels_sha256`` of the labels.
    command : str
        The command line without folders.

    Raises
    ------
    DatasetError
        There are too few problems.
    UnsupportedError
        LightGBM is not installed.
    """
    groups = [group for row in rows if (group := _group(row))[1].size > 1]
    if len(groups) < _LEAST:
        raise DatasetError(f"expected at least {_LEAST} problems with times, found {len(groups)}; measure more labels")
    features = np.concatenate([group[0] for group in groups])
    card = RankCard(
        **about,
        groups=len(groups),
        candidates=features.shape[0],
        ranges=dict(zip(FEATURES, zip(features.min(0), features.max(0), strict=True), strict=True)),
        held_out=_held_out(groups),
        made_with={name: version(name) for name in ("lightgbm", "numpy")} | {"command": command},
    )
    return RankModel(card=card, trees=_fitted(groups))


def _group(row: TileLabels) -> Group:
    timed = [one for one in row.tried if one.samples_us]
    features = np.array([one.features for one in timed], np.float64).reshape(len(timed), len(FEATURES))
    return features, np.array([np.median(one.samples_us) for one in timed], np.float64)


def _held_out(groups: Sequence[Group]) -> dict[str, float]:
    """Score models on the problems that they did not see, on average over these problems.

    The scores are the regret of the first and of the best of the first ten, how often the best of all is among the ten,
    and Kendall's tau.
    """
    scores = []
    for fold in range(_FOLDS):
        trees = _fitted([group for at, group in enumerate(groups) if at % _FOLDS != fold])
        for features, times in groups[fold::_FOLDS]:
            predicted, losses = trees.score(features), np.log(times / times.min())
            order = np.argsort(predicted, kind="stable")
            scores.append(
                {
                    "regret_of_first": losses[order[0]],
                    "regret_of_first_ten": losses[order[:RANKED]].min(),
                    "best_in_first_ten": times.argmin() in order[:RANKED],
                    "kendall_tau": kendall(predicted, times),
                }
            )
    means = pd.DataFrame(scores).mean()
    means[:2] = np.expm1(means[:2])
    return {str(name): round(float(mean), 4) for name, mean in means.items()}


def _fitted(groups: Sequence[Group]) -> Trees:
    return take_over(ranking_trees(groups, LEVELS, _TREES, **_SETTINGS))


def take_over(booster: Any) -> Trees:
    """Take the trees of a LightGBM booster; their sums are its raw predictions."""
    nodes = booster.trees_to_dataframe()
    places = {name: place for place, name in enumerate(nodes["node_index"])}
    features = {name: number for number, name in enumerate(booster.feature_name())}
    is_leaf = nodes["split_feature"].isna()
    columns = {
        "feature": nodes["split_feature"].map(features).fillna(-1).astype(int),
        "threshold": nodes["value"].where(is_leaf, nodes["threshold"]),
        "left": nodes["left_child"].map(places).fillna(0).astype(int),
        "right": nodes["right_child"].map(places).fillna(0).astype(int),
    }
    roots = np.flatnonzero(~nodes["tree_index"].duplicated())
    return Trees.model_validate({"roots": tuple(roots), **{name: tuple(one) for name, one in columns.items()}})
