"""DASH's model of a platform as a cost model of the implementation that the platform's configs belong to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import cache_root
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.dash.mapping import CommonConfig, of_loops
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.score import DashScores
from spmark.impls.dash.weights import Subject, load
from spmark.impls.table import platform_of
from spmark.impls.tuning.platform import Platform


def own_model(platform: str, op: Op) -> Path:
    """Give the path of this machine's own model of a platform and an operator; it may not exist."""
    return cache_root() / "models" / "dash" / f"{platform}-{op}.safetensors"


class TransferredScores:
    """Scores of the model that ``spmark train dash`` keeps for the platform of an implementation.

    Parameters
    ----------
    how : Implementation
        One whose configs a platform has.
    device : DeviceSpec
        Not looked at: a model is of the machine that its samples are of, as the model's file says.

    Raises
    ------
    SweepError
        No platform has the implementation's configs.
    """

    unit: ClassVar[str | None] = None

    def __init__(self, how: Any, device: DeviceSpec) -> None:
        self._platform: Platform = platform_of(how.name)

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64; NaN for a config with values that the platform does not have.

        Raises
        ------
        BuildError
            There is no model of platform and operator, or its file is damaged or of another space.
        UnsupportedError
            PyTorch or safetensors is not installed.
        """
        path = own_model(self._platform.name, problem.op)
        if not path.is_file():
            raise BuildError(
                f"expected a model of {problem.op} on {self._platform.name} at {path}, found none: "
                "train one with spmark train dash, without --out"
            )
        platform, own = self._platform, OwnParameters(self._platform.own_axes(problem.op))

        def common(config: Config) -> CommonConfig:
            return of_loops(platform.common(config))

        def numbers(some: Sequence[Config]) -> NDArray[np.float32]:
            return own.vectors([platform.own(config) for config in some])

        def is_known(config: Config) -> bool:
            try:
                return bool(common(config)) and numbers([config]).size > 0
            except (KeyError, ValueError):
                return False

        subject = Subject(
            platform=platform.name,
            op=problem.op,
            space_digest=platform.digest(problem.op),
            parameters_digest=own.digest,
        )
        model = DashScores(load(path, subject), common, numbers)
        known = [number for number, config in enumerate(configs) if is_known(config)]
        scores = np.full(len(configs), np.nan)
        scores[known] = model.score(problem, [configs[number] for number in known]) if known else 0
        return scores
