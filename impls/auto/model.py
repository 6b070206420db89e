"""The learned selector: expected time and seconds of building of each candidate, from boosted trees in a file.

LightGBM trains (`scripts/studies/auto_selector.py`). The trees are flat arrays in an npz, which is never unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.auto.portfolio import NAMES, PORTFOLIO, Features
from spmark.impls.auto.race import Choice
from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.trees import FlatTrees
from spmark.impls.core.untrusted import reading

TRAINED_ON = "nvidia-h100-80gb-hbm3"
REFERENCE, DENSE = "sparsetir", "cublas"
"""Candidates whose times are learned in the units of `Features.unit_us`. The times of all others are learned over the
reference's, in which what they have in common cancels."""
MODEL = Path(__file__).parent / "models" / f"{TRAINED_ON}.npz"


@dataclass(frozen=True, eq=False)
class Trees(FlatTrees):
    """Boosted trees whose leaves are added up."""

    value: NDArray[np.float64]
    """(nodes,) what a leaf adds."""
    build_s: NDArray[np.float64]
    """(candidates, 2) seconds of building: constant, and for each million non-zeros."""

    def predict(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the sums of leaves of samples (s, f), (s,) float64. O(s trees depth)."""
        return np.asarray(self.value[self.reached(samples)].sum(1), np.float64)

    def check(self, num_features: int, num_candidates: int, where: str) -> None:
        """Refuse arrays whose walk would leave them or never end.

        Raises
        ------
        BuildError
            Says which array is wrong.
        """
        sizes = {"value": self.value.shape == self.feature.shape, "build_s": self.build_s.shape == (num_candidates, 2)}
        if wrong := self.fault(num_features) or next((name for name, fits in sizes.items() if not fits), ""):
            raise BuildError(f"{where}: expected {wrong} of trees, found other sizes or values: train them again")


@dataclass(frozen=True)
class Expected:
    """What is expected of a candidate."""

    choice: Choice
    us: float
    """Time of a run on the GPU of the training, microseconds."""
    build_s: float
    """Seconds of searching, converting and compiling."""

    def seconds(self, runs: int) -> float:
        """Give the seconds of so many runs, building included; those of one run alone where ``runs`` is 0."""
        return self.us * 1e-6 * runs + self.build_s if runs else self.us * 1e-6


def ranked(trees: Trees, features: Features, op: Op, width: int, dtype: DType, *, runs: int) -> list[Expected]:
    """Order the candidates of an operator by the seconds of so many runs, best first.

    Parameters
    ----------
    trees : Trees
        Those of the operator, such as `read` gives.
    features : Features
    op : Op
    width : int
        J.
    dtype : DType
    runs : int
        0 for so many that building does not count.
    """
    names = list(PORTFOLIO[op])
    learned = 2.0 ** trees.predict(samples_of(features.vector(width, dtype)[None], len(names)))
    reference_us = learned[names.index(REFERENCE)] * features.unit_us(width, dtype)
    own = {REFERENCE: features.unit_us(width, dtype), DENSE: features.unit_us(width, dtype, dense=True)}
    times = learned * [own.get(name, reference_us) for name in names]
    build_s = trees.build_s @ (1.0, features.nnz / 1e6)
    expected = map(Expected, PORTFOLIO[op].values(), times.tolist(), build_s.tolist())
    return sorted(expected, key=lambda one: one.seconds(runs))


def samples_of(vectors: NDArray[np.float64], num_candidates: int) -> NDArray[np.float64]:
    """Give what trees look at for every problem and candidate: a problem's features, and a one for the candidate.

    Parameters
    ----------
    vectors : (n, f) float64
    num_candidates : int
        c.

    Returns
    -------
    (n c, f + c) float64
        The candidates of a problem stand together.
    """
    ones = np.tile(np.eye(num_candidates), (len(vectors), 1))
    return np.hstack([np.repeat(vectors, num_candidates, 0), ones])


@cache
def read(path: Path = MODEL) -> Mapping[Op, Trees]:
    """Read the trees of each operator, checked so that no walk leaves them.

    Raises
    ------
    BuildError
        The file is missing or damaged.
    """
    found: dict[Op, Trees] = {}
    with reading(path, "a selector", BuildError), np.load(path, allow_pickle=False) as file:
        for op, candidates in PORTFOLIO.items():
            found[op] = Trees(**{one.name: file[f"{op}.{one.name}"] for one in fields(Trees)})
            found[op].check(len(NAMES) + len(candidates), len(candidates), f"{path}: {op}")
    return found
