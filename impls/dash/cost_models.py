"""DASH's model of a platform as a cost model of the platform's configs.

The featuriser runs once for a matrix, then all configs pass the predictor as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.finding import find_model, why_missing
from spmark.impls.dash.mapping import vectors
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.sites import down_sample, sizes
from spmark.impls.dash.weights import Subject, TrainedModel, load
from spmark.impls.dash.withtorch import Tensor, load_torch
from spmark.impls.table import PLATFORMS, platform_of
from spmark.impls.tuning.platform import Platform


class DashScores:
    """A trained model that is asked about configs of its platform.

    Parameters
    ----------
    model : TrainedModel
    platform : Platform
    own : OwnParameters
        Of the platform's axes for the model's operator.
    """

    def __init__(self, model: TrainedModel, platform: Platform, own: OwnParameters) -> None:
        self._model, self._platform, self._own = model, platform, own

    @property
    def digest(self) -> str:
        """`spmark.impls.dash.weights.ModelCard.digest`: which model this is."""
        return self._model.card.digest

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64; lower is better, and only the order means something.

        The score is NaN for a config with values that the platform does not have. O(nnz), then the cost of a network
        over at most `NetworkSpec.max_sites` sites, then O(len(configs)).
        """
        known = [number for number, config in enumerate(configs) if self._knows(config)]
        scores = np.full(len(configs), np.nan)
        if known:
            scores[known] = self.rank(self.embed(problem), [configs[number] for number in known])
        return scores

    def rank(self, matrix: Tensor, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score configs of the matrix that `embed` gave as (128,) tensor, (len(configs),) float64."""
        common = vectors([self._platform.common(config) for config in configs])
        return self._model.rank(matrix, common, self._numbers(configs))

    def _knows(self, config: Config) -> bool:
        try:
            return bool(self._platform.common(config)) and len(self._numbers([config])) == 1
        except (KeyError, ValueError):
            return False

    def embed(self, problem: Problem) -> Tensor:
        """Give a problem's embedding, (128,)."""
        network = self._model.network
        sites = down_sample(problem.matrix, network.spec.max_sites, network.spec.max_side)
        with load_torch().no_grad():
            return network.embed(Pattern.of(sites, sizes(problem), network.device))

    def _numbers(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """Give the platform's own parameters of n configs, (n, size)."""
        return self._own.vectors([self._platform.own(config) for config in configs])


def platform_scores(platform: Platform, op: Op, device: str = "cpu") -> DashScores:
    """Give the scores of the platform's model.

    Parameters
    ----------
    platform : Platform
    op : Op
    device : str
        PyTorch's name of the device that computes the scores.

    Raises
    ------
    BuildError
        There is no model, its file is damaged or of another platform, operator or space, or its encoder reads other
        numbers than the platform's own parameters, as that of WACO with augmented features does.
    UnsupportedError
        PyTorch or safetensors is not installed.
    """
    path = find_model(platform.name, op)
    if path is None:
        raise BuildError(why_missing(platform.name, op))
    own = OwnParameters(platform.own_axes(op))
    subject = Subject(platform=platform.name, op=op, space_digest=platform.digest(op), parameters_digest=own.digest)
    model = load(path, subject, device)
    if (found := model.encoder.maps[0][0].shape[0]) != own.size:
        raise BuildError(
            f"{path}: expected an encoder of the platform's {own.size} own parameters, found one of {found}"
        )
    return DashScores(model, platform, own)


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
        return platform_scores(self._platform, problem.op).score(problem, configs)
