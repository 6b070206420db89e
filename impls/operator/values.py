"""Where plans keep A's values, so that new values of the same pattern can be written into them without a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType

_DIGITS = {DType.FLOAT32: (1 << 24) - 1, DType.FLOAT16: (1 << 11) - 1}
"""Base of the digits that count positions: every number up to the base itself is exact in the type."""


@dataclass(frozen=True, eq=False)
class Slots:
    """The array of a plan that holds A's values, and the origin of each of its elements.

    Parameters
    ----------
    values : device array
        `Plan.values`.
    origins : device array of int64, optional
        Same shape: the position in CSR order of each element's value, nnz where the element is padding. None where the
        array holds the values in CSR order.
    """

    values: Any
    origins: Any | None

    def write(self, latest: Any, xp: Any) -> None:
        """Enqueue the writing of new values.

        Parameters
        ----------
        latest : (nnz + 1,) device array
            Values in CSR order, and then 0.
        xp : module
            NumPy or CuPy.
        """
        if self.origins is None:
            self.values.reshape(-1)[: latest.size - 1] = latest[:-1]
        else:
            self.values[...] = xp.take(latest, self.origins)


def find_slots(
    plan: Plan, latest: Any, dtype: DType, build: Callable[[NDArray[np.float32]], Plan], xp: Any
) -> Slots | None:
    """Find where a plan keeps each value, by building it again with values that count.

    Value p of the k-th build is the k-th digit of p, plus 1, so that the builds together tell the position of every
    element; padding stays 0. One build does for 16 million non-zeros of float32, two for 4 million of float16.

    Parameters
    ----------
    plan : Plan
    latest : (nnz + 1,) device array
        The values that the plan holds now, in CSR order, and then 0.
    dtype : DType
    build : callable
        Builds the plan with other values, (nnz,) float32, by the same config.
    xp : module
        NumPy or CuPy.

    Returns
    -------
    Slots or None
        None where the plan names no array, or where writing the present values would change that array: the plan then
        has to be built again for new values.
    """
    if plan.values is None:
        return None
    nnz, base = latest.size - 1, _DIGITS[dtype]
    origins, unit = xp.zeros(plan.values.shape, xp.int64), 1
    positions = np.arange(nnz)
    while True:
        counted = build((positions // unit % base + 1).astype(np.float32)).values
        if counted is None or counted.shape != plan.values.shape:
            return None
        digits = counted.astype(xp.int64) - 1
        padding = digits < 0
        origins += unit * digits
        unit *= base
        if unit >= nnz:
            break
    origins[padding] = nnz
    if not bool(((origins >= 0) & (origins <= nnz)).all()):
        return None
    if not bool((xp.take(latest, origins) == plan.values).all()):
        return None
    in_order = origins.ravel()[:nnz]
    ordered = in_order.size == nnz and bool((in_order == xp.arange(nnz)).all())
    ordered = ordered and bool((origins.ravel()[nnz:] == nnz).all())
    return Slots(plan.values, None if ordered else origins)
