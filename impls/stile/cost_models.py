"""STile's prices as a cost model of configs: the search that prices tiles finds the tiles of a config again.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2 and definition 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem

if TYPE_CHECKING:
    from spmark.impls.stile.plan import Stile

_FORM = ("formats", "part", "divisions", "widest")
"""The names in a config that decide its tiles; the rest is the schedule, which has no price."""

_MOVED = "near"
"""What records of earlier versions say of rows in another order than A's."""


class TilePrices:
    """The sum of the costs of a config's tiles, over all multiprocessors evenly.

    Parameters
    ----------
    how : Stile
        Gives the rules, the calibration and the ``cost_model`` of the search.
    device : DeviceSpec
    """

    unit: ClassVar[str | None] = "s"

    def __init__(self, how: Stile, device: DeviceSpec) -> None:
        self._how, self._device = how, device

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Search once and score every config, (len(configs),) float64 seconds; takes as long as the search.

        Configs of one form have one score. NaN where the search finds no such form, which is so of rows in another
        order: records of earlier versions have them.

        Raises
        ------
        DeviceError
            There is no calibration for the operator and the dtype.
        """
        calibration, _ = self._how.priced_by(problem, self._device)
        seconds = {
            form_of(form.facts): form.predicted_ms * 1e-3
            for form in self._how.forms(problem, calibration, measured=True)
        }
        found = [np.nan if config.get("rows") == _MOVED else seconds.get(form_of(config), np.nan) for config in configs]
        return np.array(found, np.float64)


def form_of(config: Config) -> tuple[object, ...]:
    """Give what decides the tiles of a config."""
    return tuple(config.get(name) for name in _FORM)
