"""The input featurisers: from a matrix's sites and sizes to an embedding of 128 numbers.

DASH's (COGNATE, section 3.2 and table 4) has four blocks of three convolutions, with a pooling after each of the first
three. WACO's (Won, Mendis, Emer and Amarasinghe, ASPLOS 2023) has 14 layers of 32 channels, all but the first of stride
2, and averages after every layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, pairwise, repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.sites import FEATURES, SIZES, Sites
from spmark.impls.dash.sparseconv import Pyramid, average, convolve, pool
from spmark.impls.dash.withtorch import Layers, Tensor, load_torch

EMBEDDING: Final = 128
BLOCKS: Final = ((32, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 256))
"""Channels of the results of DASH's convolutions, by block."""
_OF_SIZES = 32
"""Numbers that the sizes become, as in WACO."""


class Featuriser(StrEnum):
    """Which network looks at the pattern."""

    DASH = "dash"
    WACO = "waco"
    NONE = "none"
    """No network: the sizes alone."""


_CHANNELS: Final = {Featuriser.DASH: tuple(chain(*BLOCKS)), Featuriser.WACO: (32,) * 14, Featuriser.NONE: ()}
"""Channels of the results of all convolutions."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """A matrix as a featuriser reads it, on a device."""

    pyramid: Pyramid
    sizes: Tensor
    """(4,) float32, in the order of `SIZES`."""

    @classmethod
    def of(cls, sites: Sites, sizes: NDArray[np.float32], device: str = "cpu") -> Pattern:
        """Put a matrix's sites and sizes on a device."""
        return cls(Pyramid(sites, device), load_torch().from_numpy(sizes).to(device))


def build(kind: Featuriser) -> Layers:
    """Make a featuriser's layers with random weights (`torch.nn.ModuleDict`)."""
    nn = load_torch().nn
    channels = _CHANNELS[kind]
    layers = {"sizes": nn.Sequential(nn.Linear(len(SIZES), 64), nn.ReLU(), nn.Linear(64, _OF_SIZES), nn.ReLU())}
    layers["convolutions"] = nn.ModuleList()
    for offsets, (before, after) in zip(_offsets(), pairwise((len(FEATURES), *channels)), strict=False):
        layer = nn.Linear(len(offsets) ** 2 * before, after)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
        layers["convolutions"].append(layer)
    if kind is Featuriser.WACO:
        layers["joint"] = nn.Sequential(nn.Linear(sum(channels) + _OF_SIZES, 256), nn.ReLU(), nn.Linear(256, EMBEDDING))
    else:
        layers["norms"] = nn.ModuleList(nn.LayerNorm(block[-1]) for block in BLOCKS if channels)
        layers["joint"] = nn.Linear(sum(channels[-1:]) + _OF_SIZES, EMBEDDING)
    return nn.ModuleDict(layers)


def embed(kind: Featuriser, layers: Layers, pattern: Pattern) -> Tensor:
    """Give a matrix's embedding, (128,) float32."""
    looks = {Featuriser.DASH: _look_dash, Featuriser.WACO: _look_waco}
    pooled = looks[kind](layers, pattern.pyramid) if kind in looks else []
    return layers["joint"](load_torch().cat([*pooled, layers["sizes"](pattern.sizes)]))


def _look_dash(layers: Layers, pyramid: Pyramid) -> list[Tensor]:
    features, convolutions, kernels = pyramid.features, iter(layers["convolutions"]), _offsets()
    for level, (channels, norm) in enumerate(zip(BLOCKS, layers["norms"], strict=True)):
        for _ in channels:
            features = convolve(features, pyramid.taps(level, next(kernels)), next(convolutions)).relu()
        if level + 1 < len(BLOCKS):
            features = pool(features, pyramid.taps(level, range(2), halved=True))
        features = norm(features)
    return [average(features)]


def _look_waco(layers: Layers, pyramid: Pyramid) -> list[Tensor]:
    features, averages = pyramid.features, []
    for number, (offsets, layer) in enumerate(zip(_offsets(), layers["convolutions"], strict=False)):
        taps = pyramid.taps(max(0, number - 1), offsets, halved=number > 0)
        features = convolve(features, taps, layer).relu()
        averages.append(average(features))
    return averages


def _offsets() -> Iterator[range]:
    """Give the rows, and columns, that the kernels of the convolutions reach: 5 x 5 sites, then 3 x 3."""
    return chain((range(-2, 3),), repeat(range(-1, 2)))
