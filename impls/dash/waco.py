"""WACO beside DASH: its network with two ways of transfer, and its search.

Won, Mendis, Emer and Amarasinghe, "WACO", ASPLOS 2023. WACO's network is `Featuriser.WACO` and `PredictorKind.WACO`.
DASH's paper (section 4.2) transfers it by feature augmentation and by feature mapping, and as it is.

WACO's search links configs whose embeddings are near by L2, then walks these links towards a lower predicted cost.
Libraries of nearest neighbours walk by the distance that built the graph, so that the graph and the walk are written
here. WACO's graph has layers (HNSW) and this one has none: a ring through all configs in a random order makes every
config reachable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush, heapreplace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from spmark.impls.dash.encoders import Encoder, EncoderKind, augmented, padded
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.mapping import COMMON_SIZE
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.predictor import PredictorKind

LINKS = 32
BEAM = 200
_STARTS = 16


class Transfer(StrEnum):
    """How WACO's network meets the configs of several platforms."""

    AUGMENTED = "augmented"
    """Every platform has slots of its own for all its numbers, mapped ones included."""
    MAPPED = "mapped"
    """The common vector is shared; a platform has slots of its own for its own parameters."""
    PLAIN = "plain"
    """Nothing is done: the numbers of all platforms stand in the same places, whatever they mean."""


def waco_spec(transfer: Transfer, own: Mapping[str, int]) -> tuple[NetworkSpec, dict[str, int]]:
    """Give the network of a way of transfer, and how many slots each platform has, for `waco_encoder`.

    Parameters
    ----------
    transfer : Transfer
    own : mapping of str to int
        Numbers of own parameters by platform.
    """
    mapped = transfer is Transfer.MAPPED
    slots = {platform: size + (0 if mapped else COMMON_SIZE) for platform, size in own.items()}
    spec = NetworkSpec(
        featuriser=Featuriser.WACO,
        mapped=mapped,
        encoder=EncoderKind.AUGMENTED,
        latent=max(slots.values()) if transfer is Transfer.PLAIN else sum(slots.values()),
        predictor=PredictorKind.WACO,
    )
    return spec, slots


def waco_encoder(transfer: Transfer, platform: str, slots: Mapping[str, int]) -> Encoder:
    """Give the encoder of a platform, with the slots that `waco_spec` gave for all platforms."""
    if transfer is Transfer.PLAIN:
        return padded(slots[platform], max(slots.values()))
    return augmented(platform, slots)


def slot_numbers(transfer: Transfer, common: NDArray[np.float32], own: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give the numbers that enter a platform's slots, (n, numbers) float32.

    Parameters
    ----------
    transfer : Transfer
    common : (n, 53) float32
    own : (n, size) float32
    """
    return own if transfer is Transfer.MAPPED else np.concatenate([common, own], axis=1)


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Links between configs whose embeddings are near."""

    links: tuple[NDArray[np.int64], ...]
    """For each config, the numbers of its neighbours in rising order."""
    starts: NDArray[np.int64]
    """Where walks begin."""

    @classmethod
    def of(cls, embeddings: NDArray[np.float32], links: int = LINKS, seed: int = 0) -> NeighbourGraph:
        """Link each embedding with its nearest, both ways, and with its successor on a random ring.

        Parameters
        ----------
        embeddings : (n, numbers) float32
        links : int
            Nearest neighbours of each.
        seed : int
            Of the ring and of the starts.

        Raises
        ------
        ValueError
            There is no embedding.
        """
        size = len(embeddings)
        if size == 0:
            raise ValueError("expected at least one embedding to link, found none")
        ring = np.random.default_rng(seed).permutation(size)
        nearest = list(range(1, min(links + 1, size) + 1))  # itself, and others
        near = cKDTree(embeddings.astype(np.float64)).query(embeddings, nearest)[1]
        ends = np.concatenate([np.repeat(np.arange(size), near.shape[1]), ring])
        others = np.concatenate([near.ravel(), np.roll(ring, -1)])
        pairs = np.unique(np.concatenate([ends * size + others, others * size + ends]))
        pairs = pairs[pairs // size != pairs % size]
        bounds = np.searchsorted(pairs, np.arange(size + 1) * size)
        return cls(tuple(pairs[a:b] % size for a, b in pairwise(bounds)), ring[:_STARTS])

    def walk(
        self, cost: Callable[[NDArray[np.int64]], NDArray[np.float64]], count: int, beam: int = BEAM
    ) -> tuple[list[int], int]:
        """Go from config to config towards a lower cost.

        Parameters
        ----------
        cost : callable
            Gives the costs of configs by their numbers, (n,) float64.
        count : int
            Configs that are wanted.
        beam : int
            Best configs that are remembered. The walk ends where no link of theirs leads to a better one; with a beam
            of all configs, every config is asked for.

        Returns
        -------
        found : list of int
            Numbers of the best configs, the best first.
        asked : int
            Configs whose cost was predicted.
        """
        beam = max(beam, count)
        asked = np.zeros(len(self.links), np.bool_)
        best: list[tuple[float, int]] = []
        open_ends: list[tuple[float, int]] = []
        fresh = self.starts
        while True:
            asked[fresh] = True
            for value, config in zip(cost(fresh).tolist() if fresh.size else [], fresh.tolist(), strict=True):
                if len(best) < beam:
                    heappush(best, (-value, -config))
                elif (-value, -config) > best[0]:
                    heapreplace(best, (-value, -config))
                else:
                    continue
                heappush(open_ends, (value, config))
            if not open_ends or (len(best) == beam and open_ends[0][0] > -best[0][0]):
                break
            near = self.links[heappop(open_ends)[1]]
            fresh = near[~asked[near]]
        ranked = sorted((-value, -config) for value, config in best)
        return [config for _, config in ranked[:count]], int(asked.sum())
