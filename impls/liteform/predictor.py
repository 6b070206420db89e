"""The two predictors of composing, format and number of partitions, with where they come from, as one file.

A file is NumPy's npz without pickles; a JSON text in it states its schema, the order of the features, the labels
that the models were trained on and a digest of the arrays. Files that ship stand under ``models``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import digest_of_arrays, model_file, written
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.impls.liteform.features import PARTITIONS, SELECTION, SELECTION_BY_WIDTH, Features
from spmark.impls.liteform.forest import Forest, forest_from

SHIPPED: Final = "nvidia-h200"
"""The file that is taken by default."""
_FEATURES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "selection": (SELECTION, SELECTION_BY_WIDTH),
    "partitions": (PARTITIONS,),
}
"""Orders that a model may have."""
_CARD = "card"
_MODELS = Path(__file__).parent / "models"


class ForestCard(Frozen):
    """Facts about the models of a file."""

    schema_version: Literal[1] = 1
    name: str = ""
    trained_on: str
    """Source of the labels, their GPU and their licence."""
    labels_sha256: str
    """Digest of the labels' files."""
    gpu: str
    """GPU that the labels were measured on."""
    rows: dict[str, int] = {}
    """Samples by model."""
    features: dict[str, tuple[str, ...]] = {}
    """Order of the features by model."""
    made_with: dict[str, str] = {}
    """Versions, and the command."""
    digest: str = ""
    """SHA-256 over the arrays."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """Models of one device, or of one data set."""

    card: ForestCard
    selection: Forest
    """Says 1 where CELL is expected to be faster than the fixed formats: by a tenth, or, where it is told J, at all."""
    partitions: Forest
    """Says how many column partitions CELL should have."""

    @property
    def by_width(self) -> bool:
        """Whether the format is chosen for each J by itself."""
        return self.card.features["selection"] == SELECTION_BY_WIDTH

    def pays(self, features: Features, width: int) -> bool:
        """Say whether CELL is expected to be faster than the fixed formats."""
        return bool(self.selection.predict(self._selection(features, width)))

    def _selection(self, features: Features, width: int) -> NDArray[np.float64]:
        return features.selection(width if self.by_width else None)

    def outside(self, features: Features, width: int) -> str:
        """Say which feature lies outside of the training range; empty where all lie inside.

        The paper's forests, which are not told J, are asked whatever the matrix is: the paper has no such range.
        """
        if not self.by_width:
            return ""
        samples = self._selection(features, width), features.partitions(width)
        for name, forest, sample in zip(_FEATURES, (self.selection, self.partitions), samples, strict=True):
            for place in np.flatnonzero((sample < forest.low) | (sample > forest.high)):
                return (
                    f"{self.card.features[name][place]} of {sample[place]:.6g} is outside of the training range, "
                    f"{forest.low[place]:.6g} to {forest.high[place]:.6g}"
                )
        return ""

    def save(self, path: Path) -> ForestCard:
        """Write the file; gives its card with the digest.

        Raises
        ------
        BuildError
            The file cannot be written.
        """
        arrays = {f"{name}.{key}": array for name in _FEATURES for key, array in getattr(self, name).arrays().items()}
        card = self.card.model_copy(update={"digest": digest_of_arrays(arrays)})
        text = np.frombuffer(card.model_dump_json().encode(), np.uint8)
        with written(path, BuildError) as part, part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **{_CARD: text}, **arrays)
        return card


def load(path: Path) -> Predictor:
    """Read a file and check all of it.

    Raises
    ------
    BuildError
        The file is missing, damaged, of another schema or of another order of features.
    """
    # Opened here, since NumPy leaves a file open whose list of contents is damaged.
    with (
        reading(path, "a model file with a card of schema 1", BuildError),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        arrays: dict[str, NDArray[Any]] = {name: archive[name] for name in archive.files}
        card = parse_model(ForestCard, arrays.pop(_CARD).tobytes())
    if card.features.keys() != _FEATURES.keys() or any(
        card.features[name] not in _FEATURES[name] for name in _FEATURES
    ):
        raise BuildError(
            f"{path}: expected features in the order of one of {dict(_FEATURES)}, found {card.features}; "
            "train the model again: spmark study train liteform"
        )
    if digest_of_arrays(arrays) != card.digest:
        raise BuildError(f"{path}: expected arrays with the digest {card.digest}, found others: the file is damaged")
    forests = {
        name: forest_from(arrays, f"{name}.", len(order), f"{path}: {name}") for name, order in card.features.items()
    }
    if forests["selection"].classes.tolist() != [0, 1] or forests["partitions"].classes.min() < 1:
        raise BuildError(f"{path}: expected classes 0 and 1, and numbers of partitions, found others; train it again")
    return Predictor(card, **forests)


def shipped() -> list[str]:
    """List the models that ship, by name."""
    return sorted(path.stem for path in _MODELS.glob("*.npz"))


@cache
def find(name: str) -> Predictor:
    """Give a model that ships, or a model by the path of its file; a process reads it once.

    Raises
    ------
    BuildError
        The model is missing, or its file cannot be used.
    """
    return load(model_file(_MODELS, name, ".npz"))
