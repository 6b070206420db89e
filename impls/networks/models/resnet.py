"""ResNet (He, Zhang, Ren and Sun, CVPR 2016; v1.5) with pruned convolutions, batch normalisation folded into them.

LO-SpMM (Lin et al., ACM TACO 2024, section 7.4) has ResNet50 at 90 %, its first and last layer dense, a batch of 32.
"""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from spmark.impls.core.network import NetworkProblem
from spmark.impls.networks.models.bert import scaled
from spmark.impls.networks.models.libraries import Library
from spmark.impls.networks.models.step import Step, product_part

_CLASSES = 1000


def step(problem: NetworkProblem, library: Library, mode: str) -> Step:
    """Make the forward pass of random images."""
    network, place = problem.pruned, library.place
    generator = torch.Generator(place).manual_seed(problem.seed)
    weights = iter(zip(network.layers, network.parts(problem.matrix), strict=True))
    side, parts = problem.width_in // 4, {}

    def convolution(name: str, side: int, relu: bool) -> nn.Module:
        layer, weight = next(weights)
        bias = library.drawn(generator, layer.filters) / 8
        images = problem.width, layer.channels, side, side
        made = library.convolution(layer, scaled(weight, 2**0.5 if relu else 0.5), bias, relu, images)
        parts[name] = product_part(made, library.drawn(generator, *images), False)
        return made

    stem, last = (one.to(place, library.dtype) for one in (nn.Conv2d(3, 64, 7, 2, 3), nn.Linear(2048, _CLASSES)))
    blocks = []
    for stage, count in enumerate(network.blocks):
        for block in range(count):
            stride, name = 2 if stage and not block else 1, f"{stage}.{block}"
            layers = [convolution(f"{name} first", side, True), convolution(f"{name} second", side, True)]
            layers.append(convolution(f"{name} third", side // stride, False))
            shortcut = nn.Identity() if block else convolution(f"{name} shortcut", side, False)
            blocks.append(_Bottleneck(nn.Sequential(*layers), shortcut))
            side //= stride
    with torch.no_grad():
        for one in (*stem.parameters(), *last.parameters()):
            one.copy_(library.drawn(generator, *one.shape) * (2 / one[0].numel()) ** 0.5)
    beginning = nn.Sequential(stem, nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    module = nn.Sequential(beginning, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)
    x = library.drawn(generator, problem.width, 3, problem.width_in, problem.width_in)
    return Step(torch.no_grad()(lambda: module(x)), mode, place=place, parts=parts)


class _Bottleneck(nn.Module):  # type: ignore[misc]
    def __init__(self, layers: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = layers, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return (self.layers(x) + self.shortcut(x)).relu_()
