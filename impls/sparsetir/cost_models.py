"""SparseTIR's rule for the widest bucket as a cost model of configs.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.sparsetir.search import rule_width

if TYPE_CHECKING:
    from spmark.impls.sparsetir.plan import SparseTir


class WidthRule:
    """How many powers of two a widest bucket is away from k = ceil(log2(nnz / I)); the paper has no rule for c.

    Parameters
    ----------
    how : SparseTir
    device : DeviceSpec
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: SparseTir, device: DeviceSpec) -> None:
        """Take what every cost model is made of; the rule depends on the matrix alone."""

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config by its ``max_width``, (len(configs),) float64.

        NaN where it has none, as for SDDMM and for CSR as it comes, of which the rule says nothing.
        """
        widths = np.array([config.get("max_width", np.nan) for config in configs], np.float64)
        away: NDArray[np.float64] = np.abs(np.log2(widths) - np.log2(rule_width(problem)))
        return away
