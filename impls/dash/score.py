"""Scores of configs: the featuriser runs once for a matrix, then all configs pass the predictor as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.mapping import vectors
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.sites import down_sample, sizes
from spmark.impls.dash.weights import TrainedModel
from spmark.impls.dash.withtorch import Tensor, load_torch, to_numpy
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

    unit: ClassVar[str | None] = None

    def __init__(self, model: TrainedModel, platform: Platform, own: OwnParameters) -> None:
        self._model, self._platform, self._own = model, platform, own

    @property
    def digest(self) -> str:
        """`spmark.impls.dash.weights.ModelCard.digest`: which model this is."""
        return self._model.card.digest

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64; lower is better, and only the order means something.

        O(nnz), then the cost of a network over at most `NetworkSpec.max_sites` sites, then O(len(configs)).

        Raises
        ------
        ValueError
            A config is not of the platform.
        """
        return self.rank(self.embed(problem), self.embed_configs(configs))

    def rank(self, matrix: Tensor, configs: Tensor) -> NDArray[np.float64]:
        """Score embedded configs of an embedded matrix, (n,) float64.

        Parameters
        ----------
        matrix : (128,) tensor
            Of `embed`.
        configs : (n, numbers) tensor
            Of `embed_configs`.
        """
        with load_torch().no_grad():
            return to_numpy(self._model.network.rank(matrix, configs)).astype(np.float64)

    def knows(self, config: Config) -> bool:
        """Tell whether the platform has all values of a config."""
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

    def embed_configs(self, configs: Sequence[Config]) -> Tensor:
        """Give the embeddings of configs, (len(configs), numbers)."""
        torch, network = load_torch(), self._model.network
        latent = self._model.encoder.encode(self._numbers(configs))
        common = vectors([self._platform.common(config) for config in configs])
        with torch.no_grad():
            return network.embed_configs(*(torch.from_numpy(one).to(network.device) for one in (common, latent)))

    def _numbers(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """Give the platform's own parameters of n configs, (n, size)."""
        return self._own.vectors([self._platform.own(config) for config in configs])
