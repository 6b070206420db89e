"""GraphSAGE and GCN, trained on a whole graph with random features and labels.

- GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017) with means, as SparseTIR trains it (Ye et al., ASPLOS 2023,
  section 4.2.3): three layers that aggregate first and multiply then, batch normalisation, ReLU and dropout of a half.
- GCN (Kipf and Welling, ICLR 2017): two layers that multiply first, A normalised by both ends' degrees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from spmark.impls.core.network import HIDDEN, NetworkOp, NetworkProblem
from spmark.impls.core.problem import Csr
from spmark.impls.networks.models.libraries import Library
from spmark.impls.networks.models.step import Step, product_part

_RATE = 0.01


def step(problem: NetworkProblem, library: Library, mode: str) -> Step:
    """Make the step of training; weights, features, labels and masks of dropout follow from the seed alone."""
    sage = problem.op is NetworkOp.GRAPHSAGE
    sizes = [problem.width_in, HIDDEN, HIDDEN, problem.width] if sage else [problem.width_in, HIDDEN, problem.width]
    widths = sizes[:-1] if sage else sizes[1:]
    nodes, place, dtype = problem.matrix.num_rows, library.place, library.dtype
    product = library.matrix(normalised(problem.matrix, sage), sorted(set(widths))).spmm
    generator = torch.Generator(place).manual_seed(problem.seed)
    x = library.drawn(generator, nodes, problem.width_in)
    labels = torch.randint(problem.width, (nodes, 1), generator=generator, device=place)
    kept = [torch.empty(nodes, HIDDEN, device=place, dtype=torch.uint8) for _ in sizes[1:-1]]
    module = (_GraphSage if sage else _Gcn)(sizes, product).to(place)
    with torch.no_grad():
        for one in module.parameters():
            if one.ndim == 2:
                bound = (6 / sum(one.shape)) ** 0.5  # Glorot and Bengio, AISTATS 2010
                one.uniform_(-bound, bound, generator=generator)
    module.to(dtype)

    def loss() -> Tensor:
        # PyTorch's cross_entropy takes ten times as long to take the labels' entries and to add them up.
        return -nn.functional.log_softmax(module(x, kept), dim=1).gather(1, labels).mean()

    def draw(drawn: torch.Generator) -> None:
        for mask in kept:
            mask.bernoulli_(0.5, generator=drawn).mul_(2)

    draw(torch.Generator(place))
    parts = {}
    for at, width in enumerate(widths):
        backward = at > 0 or not sage  # the features of the first layer have no gradient
        operand = x if width == problem.width_in and sage else torch.randn(nodes, width, device=place).to(dtype)
        parts[f"aggregate {at}"] = product_part(product, operand, backward)
    return Step(loss, mode, module=module, rate=_RATE, draw=draw, place=place, parts=parts)


def normalised(graph: Csr, means: bool) -> Csr:
    """Give the graph with the values of a mean over each row, or of 1 over the root of both ends' degrees."""
    rows = np.maximum(graph.row_lengths, 1).astype(np.float32)
    values = 1 / np.repeat(rows, graph.row_lengths)
    if not means:
        degrees = np.maximum(np.bincount(graph.indices, minlength=graph.num_cols), 1).astype(np.float32)
        values = np.sqrt(values / degrees[graph.indices])
    return replace(graph, values=values.astype(np.float32))


class _GraphSage(nn.Module):  # type: ignore[misc]
    def __init__(self, sizes: list[int], product: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._product = product
        self.own, self.near = (nn.ModuleList(nn.Linear(*two, bias=False) for two in pairwise(sizes)) for _ in range(2))
        self.norms = nn.ModuleList(map(nn.BatchNorm1d, sizes[1:-1]))

    def forward(self, x: Tensor, kept: list[Tensor]) -> Tensor:
        for own, near, norm, mask in zip(self.own, self.near, self.norms, kept, strict=False):
            x = norm(self._sum(own, near, x)).relu() * mask
        return self._sum(self.own[-1], self.near[-1], x)

    def _sum(self, own: nn.Linear, near: nn.Linear, x: Tensor) -> Tensor:
        means = self._product(x)
        return own(x).addmm_(means, near.weight.T)  # the second product adds to the first


class _Gcn(nn.Module):  # type: ignore[misc]
    def __init__(self, sizes: list[int], product: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._product = product
        self.layers = nn.ModuleList(nn.Linear(*two, bias=False) for two in pairwise(sizes))

    def forward(self, x: Tensor, kept: list[Tensor]) -> Tensor:
        for layer, mask in zip(self.layers, kept, strict=False):
            x = self._product(layer(x)).relu() * mask
        return self._product(self.layers[-1](x))
