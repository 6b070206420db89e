"""Scores of configs: the featuriser runs once for a matrix, then all configs pass the predictor as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.mapping import CommonConfig, vectors
from spmark.impls.dash.sites import down_sample, sizes
from spmark.impls.dash.waco import GraphWalk, NeighbourGraph
from spmark.impls.dash.weights import TrainedModel
from spmark.impls.dash.withtorch import Tensor, load_torch, to_numpy


class DashScores:
    """A trained model that is asked about configs of its platform.

    Parameters
    ----------
    model : TrainedModel
    common : callable
        Maps a config of the platform (`spmark.impls.dash.mapping`).
    own : callable
        Gives the platform's own parameters of n configs as numbers, (n, size) float32 (`spmark.impls.dash.parameters`).
    """

    unit: ClassVar[str | None] = None

    def __init__(
        self,
        model: TrainedModel,
        common: Callable[[Config], CommonConfig],
        own: Callable[[Sequence[Config]], NDArray[np.float32]],
    ) -> None:
        self._model, self._common, self._own = model, common, own

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64; lower is better, and only the order means something.

        O(nnz), then the cost of a network over at most `NetworkSpec.max_sites` sites, then O(len(configs)).

        Raises
        ------
        ValueError
            A config is not of the platform.
        """
        with load_torch().no_grad():
            return to_numpy(self._model.network.rank(self.embed(problem), self.embed_configs(configs))).astype(
                np.float64
            )

    def search(self, problem: Problem, configs: Sequence[Config], count: int) -> GraphWalk:
        """Search configs as WACO does, by a walk over a graph of their embeddings.

        Parameters
        ----------
        problem : Problem
        configs : sequence of Config
        count : int
            Configs that are wanted.
        """
        embedded, matrix, network = self.embed_configs(configs), self.embed(problem), self._model.network

        def cost(which: NDArray[np.int64]) -> NDArray[np.float64]:
            with load_torch().no_grad():
                return to_numpy(network.rank(matrix, embedded[which])).astype(np.float64)

        return NeighbourGraph.of(to_numpy(embedded)).walk(cost, count)

    def embed(self, problem: Problem) -> Tensor:
        """Give a problem's embedding, (128,)."""
        network = self._model.network
        sites = down_sample(problem.matrix, network.spec.max_sites, network.spec.max_side)
        with load_torch().no_grad():
            return network.embed(Pattern.of(sites, sizes(problem), network.device))

    def embed_configs(self, configs: Sequence[Config]) -> Tensor:
        """Give the embeddings of configs, (len(configs), numbers)."""
        torch, network = load_torch(), self._model.network
        latent = self._model.encoder.encode(self._own(configs))
        common = vectors([self._common(config) for config in configs])
        with torch.no_grad():
            return network.embed_configs(*(torch.from_numpy(one).to(network.device) for one in (common, latent)))
