"""Embeddings of matrices by featurisers that stay as they are: each is made once for all methods of a study."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spmark.impls.dash import tensorfile
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.network import Network
from spmark.impls.dash.withtorch import Tensor, load_torch, to_numpy
from spmark.studies.dash.samples import MatrixSamples


@dataclass(frozen=True, eq=False)
class Embedding:
    """What a featuriser says of a matrix."""

    vector: Tensor
    """(128,) float32, on the network's device."""
    seconds: float
    """That making it took, without down-sampling."""


class Embeddings:
    """Embeddings so far, by the featuriser's weights and the matrix."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, bytes], Embedding] = {}

    def by(self, network: Network) -> Callable[[MatrixSamples], Embedding]:
        """Give what embeds matrices by the featuriser that the network has now."""
        weights = tensorfile.part_of(network.tensors(), "featuriser")
        spec = network.spec
        which = f"{tensorfile.digest_of(weights)} {spec.featuriser} {spec.max_sites} {spec.max_side} {network.device}"

        def embed(one: MatrixSamples) -> Embedding:
            key = which, one.matrix, one.sizes.tobytes()
            if key not in self._made:
                started = time.perf_counter()
                with load_torch().no_grad():
                    vector = network.embed(Pattern.of(one.sites, one.sizes, network.device))
                to_numpy(vector)  # waits for the device
                self._made[key] = Embedding(vector, time.perf_counter() - started)
            return self._made[key]

        return embed
