"""Decision trees as flat arrays, one tree after the other: checked once, and walked for all samples at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class FlatTrees:
    """Nodes of binary trees; children stand after their parents, so that every walk ends."""

    roots: NDArray[Any]
    """(trees,) first node of each tree."""
    feature: NDArray[Any]
    """(nodes,) feature that a node looks at, -1 in a leaf."""
    threshold: NDArray[Any]
    """(nodes,) samples up to this value go left."""
    left: NDArray[Any]
    """(nodes,) child."""
    right: NDArray[Any]
    """(nodes,) child."""

    def reached(self, samples: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """Give the leaf of each tree that samples (s, f) fall into, (s, trees). O(s trees depth)."""
        at = np.tile(self.roots, (len(samples), 1))
        which = np.arange(len(samples))[:, None]
        while (inner := self.feature[at] >= 0).any():
            down = np.where(samples[which, self.feature[at]] <= self.threshold[at], self.left[at], self.right[at])
            at = np.where(inner, down, at)
        return at

    def fault(self, num_features: int) -> str:
        """Name an array by which a walk would leave the nodes or the features, or never end; empty where none does."""
        for name, kinds in (("roots", "iu"), ("feature", "iu"), ("threshold", "iuf"), ("left", "iu"), ("right", "iu")):
            array, shape = getattr(self, name), (self.feature.size,)
            if array.dtype.kind not in kinds or (name != "roots" and array.shape != shape):
                return name
        nodes, inner = np.arange(self.feature.size), self.feature >= 0
        for name in ("left", "right"):
            child = getattr(self, name)
            if (inner & ((child <= nodes) | (child >= nodes.size))).any():
                return name
        if self.roots.ndim != 1 or not self.roots.size or self.roots.min() < 0 or self.roots.max() >= nodes.size:
            return "roots"
        return "feature" if ((self.feature < -1) | (self.feature >= num_features)).any() else ""
