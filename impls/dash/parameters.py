"""A platform's own parameters as numbers: what no other platform has, such as formats, bindings or barriers.

DASH (COGNATE), section 3.4, calls this part heterogeneous. `spmark.impls.dash.encoders` compresses the numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.tuning.space import Axis, Space

_FEW = 2
"""An axis of at most so many values is one-hot, whatever the values are."""


@dataclass(frozen=True)
class OwnParameters:
    """The axes of a space that stay out of the common vector.

    An axis of three and more positive numbers is one number: log2, scaled to [0, 1] over the axis. Any other axis is
    one-hot over its values.
    """

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Numbers of a config."""
        return sum(len(table[0]) for table in self._rows)

    @property
    def digest(self) -> str:
        """Sixteen hex digits over the axes with their values, in their order."""
        text = json.dumps([[axis.name, axis.values] for axis in self.axes], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def vectors(self, configs: Sequence[Mapping[str, Any]]) -> NDArray[np.float32]:
        """Give (n, size) float32, a row for each config, which may hold more than these parameters.

        Raises
        ------
        ValueError
            A config has a value that its axis lacks.
        """
        columns = []
        for axis, rows, places in zip(self.axes, self._rows, self._places, strict=True):
            names = tuple(axis.values[0])
            found = [tuple(config.get(name) for name in names) for config in configs]
            unknown = next((value for value in found if value not in places), None)
            if unknown is not None:
                known = ", ".join(map(str, places))
                raise ValueError(f"expected {axis.name}, {names}, out of {known}, found {unknown}")
            columns.append(rows[[places[value] for value in found]])
        return np.concatenate([np.zeros((len(configs), 0), np.float32), *columns], axis=1)

    def every(self) -> NDArray[np.float32]:
        """Give the numbers of every combination of values, (m, size) float32; m is the product of the axes' lengths."""
        return self.vectors(list(Space(self.axes).configs()))

    @cached_property
    def _rows(self) -> tuple[NDArray[np.float32], ...]:
        """For each axis, (values, numbers) float32."""
        return tuple(_numbers(axis) for axis in self.axes)

    @cached_property
    def _places(self) -> tuple[dict[tuple[Any, ...], int], ...]:
        """For each axis, the places of its values; a value is a tuple with a value of each tunable of the axis."""
        return tuple({tuple(value.values()): place for place, value in enumerate(axis.values)} for axis in self.axes)


def _numbers(axis: Axis) -> NDArray[np.float32]:
    values = [one for value in axis.values for one in value.values()]
    counted = all(isinstance(one, int | float) and not isinstance(one, bool) and one > 0 for one in values)
    if len(values) != len(axis.values) or len(values) <= _FEW or not counted:
        return np.eye(len(axis.values), dtype=np.float32)
    logs = np.log2(np.array(values, np.float64))
    column: NDArray[np.float32] = ((logs - logs.min()) / (logs.max() - logs.min())).astype(np.float32)[:, None]
    return column
