"""DASH's model of a platform as a cost model of the platform's configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.dash.finding import platform_scores
from spmark.impls.table import PLATFORMS, platform_of
from spmark.impls.tuning.platform import Platform


class TransferredScores:
    """Scores of the model that ``spmark study train dash`` keeps for a platform, or that ships.

    Parameters
    ----------
    how : Implementation or Platform
        A platform, or an implementation whose configs a platform has.
    device : DeviceSpec, optional
        Not looked at: a model is of the machine that its samples are of, as the model's file says.

    Raises
    ------
    SweepError
        No platform has the implementation's configs.
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: Any, device: DeviceSpec | None) -> None:
        self._platform: Platform = how if how.name in PLATFORMS else platform_of(how.name)

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64; NaN for a config with values that the platform does not have.

        Raises
        ------
        BuildError
            There is no model of platform and operator, or its file is damaged or of another space.
        UnsupportedError
            PyTorch or safetensors is not installed.
        """
        model = platform_scores(self._platform, problem.op)
        known = [number for number, config in enumerate(configs) if model.knows(config)]
        scores = np.full(len(configs), np.nan)
        scores[known] = model.score(problem, [configs[number] for number in known]) if known else 0
        return scores
