"""The learned selector: expected time and seconds of building of each candidate, from boosted trees in a file.

LightGBM trains (`scripts/studies/auto_selector.py`). The trees are flat arrays in an npz, which is never unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.auto.portfolio import PORTFOLIO, TWINS, Features
from spmark.impls.auto.race import Choice
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.trees import FlatTrees

TRAINED_ON = "nvidia-h100-80gb-hbm3"
REFERENCE, DENSE = "sparsetir", "cublas"
"""Candidates whose times are learned in the units of `Features.unit_us`. The times of all others are learned over the
reference's, in which what they have in common cancels."""
_MOST = 3
"""Candidates of a race."""
_GAIN = 1.03
"""How many times as fast as its twin a candidate has to be expected for a race."""
_NEAR = 1.05
"""Multiple of the first candidate's expected time, up to which a second one is worth a race."""
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


def worth_a_race(expected: Sequence[Expected], dtype: DType) -> list[Expected]:
    """Give the first three; in float32 the first, and the second where it is not expected to be clearly slower.

    In float32 a candidate that is not expected to be clearly faster than its twin does not count.
    """
    if dtype.narrow:
        return list(expected[:_MOST])

    def gains(one: Expected) -> bool:
        twin = TWINS.get(one.choice)
        return not any(other.choice == twin and other.us < _GAIN * one.us for other in expected)

    some = [one for one in expected if gains(one)][: _MOST - 1]
    return [one for one in some if one.us <= _NEAR * some[0].us]


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
def read() -> Mapping[Op, Trees]:
    """Read the trees of each operator."""
    with np.load(MODEL) as file:
        return {op: Trees(**{one.name: file[f"{op}.{one.name}"] for one in fields(Trees)}) for op in PORTFOLIO}
