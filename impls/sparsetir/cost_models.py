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
from spmark.impls.kernels.hyb_spmm import rule_width

if TYPE_CHECKING:
    from spmark.impls.sparsetir.plan import SparseTir


class WidthRule:
    """Distance of a config's widest bucket from the rule k = ceil(log2(nnz / I)), in powers of two; c has no rule.

    Parameters
    ----------
    how : SparseTir
    device : DeviceSpec
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: SparseTir, device: DeviceSpec) -> None:
        """Accept the arguments that every cost model takes; the rule depends on the matrix alone."""

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config by its ``max_width``, (len(configs),) float64.

        NaN for a config without one: of SDDMM and of CSR as it comes the rule says nothing.
        """
        widths = np.array([config.get("max_width", np.nan) for config in configs], np.float64)
        away: NDArray[np.float64] = np.abs(np.log2(widths) - np.log2(rule_width(problem)))
        return away
