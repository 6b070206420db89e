"""A forest of decision trees as flat arrays: all of them are walked at once, and kept in a file that runs nothing.

scikit-learn trains (`spmark.studies.liteform.forests`); its own prediction of one sample takes milliseconds, most of
them spent on checks and threads, and its files are pickles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.trees import FlatTrees
from spmark.impls.core.untrusted import reading

ARRAYS: Mapping[str, Any] = {
    **dict.fromkeys(("roots", "left", "right"), np.int32),
    **dict.fromkeys(("threshold", "leaves", "mean", "scale", "low", "high"), np.float64),
    **{"feature": np.int16, "classes": np.int64},
}
"""Type of every array of a forest."""


@dataclass(frozen=True, eq=False)
class Forest(FlatTrees):
    """Trees whose votes are averaged, behind a standardisation of the features; ``left`` of a leaf is its row."""

    leaves: NDArray[np.float64]
    """(m, classes) shares of the classes."""
    mean: NDArray[np.float64]
    """(f,) subtracted from a sample."""
    scale: NDArray[np.float64]
    """(f,) divides the difference."""
    low: NDArray[np.float64]
    """(f,) least value of each feature in training."""
    high: NDArray[np.float64]
    """(f,) greatest value of each feature in training."""
    classes: NDArray[np.int64]
    """(classes,) labels, rising."""

    def shares(self, sample: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the share of the votes of each class for one sample, (classes,) float64.

        The arithmetic is scikit-learn's: standardised in float64, compared as float32, averaged in tree order.

        Parameters
        ----------
        sample : (f,) float64
        """
        scaled = ((sample - self.mean) / self.scale).astype(np.float32)
        reached = self.left[self.reached(scaled[None])[0]]
        return np.asarray(self.leaves[reached].sum(0) / self.roots.size, np.float64)

    def predict(self, sample: NDArray[np.float64]) -> int:
        """Give the label with the most votes; of labels with equal votes the least."""
        return int(self.classes[np.argmax(self.shares(sample))])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Give the arrays of a file, by name."""
        return {name: getattr(self, name) for name in ARRAYS}


def forest_from(arrays: Mapping[str, NDArray[Any]], prefix: str, num_features: int, where: str) -> Forest:
    """Make a forest of arrays from outside, named behind a prefix and checked: no prediction reads beyond them.

    Raises
    ------
    BuildError
        An array is missing or of another shape, or a node points outside; the message names the array.
    """
    with reading(where, "the arrays of one forest", BuildError, "train the model again"):
        forest = Forest(**{name: np.ascontiguousarray(arrays[prefix + name], kind) for name, kind in ARRAYS.items()})
        if wrong := forest.fault(num_features) or _misfit(forest, num_features):
            raise BuildError(f"{where}: expected {wrong} of one forest, found other sizes or values; train it again")
        return forest


def _misfit(forest: Forest, num_features: int) -> str:
    """Name what does not fit trees that fit each other; empty where everything does."""
    scaling = forest.mean, forest.scale, forest.low, forest.high
    if any(array.shape != (num_features,) for array in scaling) or not forest.scale.all():
        return "features"
    if not forest.classes.size or forest.leaves.shape[1:] != forest.classes.shape:
        return "classes"
    rows = forest.left[forest.feature < 0]
    return "leaves" if ((rows < 0) | (rows >= forest.leaves.shape[0])).any() else ""
