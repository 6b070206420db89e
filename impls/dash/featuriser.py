"""The input featurisers: from a matrix's sites and sizes to an embedding of 128 numbers.

DASH's (COGNATE, section 3.2 and table 4) has four blocks of three convolutions, with a pooling after each of the first
three. WACO's (Won, Mendis, Emer and Amarasinghe, ASPLOS 2023) has 14 layers of 32 channels, all but the first of stride
2, and averages after every layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.sites import FEATURES, SIZES, Sites
from spmark.impls.dash.sparseconv import Pyramid, average, convolve, pool
from spmark.impls.dash.withtorch import Layers, Tensor, load_torch

EMBEDDING: Final = 128
BLOCKS: Final = ((32, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 256))
"""Channels of the results of DASH's convolutions, by block."""
_FIRST_KERNEL, _KERNEL = 5, 3
_WACO_LAYERS, _WACO_CHANNELS = 14, 32
_OF_SIZES = 32
"""Numbers that the sizes become, as in WACO."""


class Featuriser(StrEnum):
    """Which network looks at the pattern."""

    DASH = "dash"
    WACO = "waco"
    NONE = "none"
    """No network: the sizes alone."""


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
    layers = {"sizes": nn.Sequential(nn.Linear(len(SIZES), 64), nn.ReLU(), nn.Linear(64, _OF_SIZES), nn.ReLU())}
    pooled = 0
    if kind is Featuriser.DASH:
        layers["convolutions"] = nn.ModuleList(_convolution(*shape) for shape in _shapes())
        layers["norms"] = nn.ModuleList(nn.LayerNorm(channels[-1]) for channels in BLOCKS)
        pooled = BLOCKS[-1][-1]
    elif kind is Featuriser.WACO:
        first = _convolution(len(FEATURES), _WACO_CHANNELS, _FIRST_KERNEL)
        rest = (_convolution(_WACO_CHANNELS, _WACO_CHANNELS, _KERNEL) for _ in range(_WACO_LAYERS - 1))
        layers["convolutions"] = nn.ModuleList([first, *rest])
        pooled = _WACO_LAYERS * _WACO_CHANNELS
    joint = nn.Linear(pooled + _OF_SIZES, EMBEDDING)
    if kind is Featuriser.WACO:
        joint = nn.Sequential(nn.Linear(pooled + _OF_SIZES, 256), nn.ReLU(), nn.Linear(256, EMBEDDING))
    layers["joint"] = joint
    return nn.ModuleDict(layers)


def embed(kind: Featuriser, layers: Layers, pattern: Pattern) -> Tensor:
    """Give a matrix's embedding, (128,) float32."""
    looks = {Featuriser.DASH: _look_dash, Featuriser.WACO: _look_waco}
    pooled = looks[kind](layers, pattern.pyramid) if kind in looks else []
    return layers["joint"](load_torch().cat([*pooled, layers["sizes"](pattern.sizes)]))


def _look_dash(layers: Layers, pyramid: Pyramid) -> list[Tensor]:
    features, convolutions = pyramid.features, iter(layers["convolutions"])
    kernel = _FIRST_KERNEL
    for level, (channels, norm) in enumerate(zip(BLOCKS, layers["norms"], strict=True)):
        for _ in channels:
            taps = pyramid.taps(level, kernel)
            features = convolve(features, taps, next(convolutions)).relu()
            kernel = _KERNEL
        if level + 1 < len(BLOCKS):
            features = pool(features, pyramid.children(level))
        features = norm(features)
    return [average(features)]


def _look_waco(layers: Layers, pyramid: Pyramid) -> list[Tensor]:
    first, *rest = layers["convolutions"]
    features = convolve(pyramid.features, pyramid.taps(0, _FIRST_KERNEL), first).relu()
    averages = [average(features)]
    for level, layer in enumerate(rest):
        features = convolve(features, pyramid.strided(level, _KERNEL), layer).relu()
        averages.append(average(features))
    return averages


def _shapes() -> Iterator[tuple[int, int, int]]:
    """Give DASH's convolutions: channels of the input, channels of the result, kernel."""
    before, kernel = len(FEATURES), _FIRST_KERNEL
    for channels in BLOCKS:
        for after in channels:
            yield before, after, kernel
            before, kernel = after, _KERNEL


def _convolution(before: int, after: int, kernel: int) -> Layers:
    nn = load_torch().nn
    layer = nn.Linear(kernel * kernel * before, after)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer
