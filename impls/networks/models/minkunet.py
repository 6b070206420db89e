"""Inference by MinkUNet (Choy, Gwak and Savarese, CVPR 2019; widths of SPVNAS, Tang et al., ECCV 2020) on a scan.

Batch norms are folded into the weights. Shortcuts and the classifier are dense products.
"""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core.network import NetworkProblem
from spmark.impls.networks.models.libraries import Layer, Library
from spmark.impls.networks.models.step import Part, Step, product_part


def step(problem: NetworkProblem, library: Library, mode: str) -> Step:
    """Make the forward pass of random features; weights keep the variance of a row with as many edges as the mean."""
    maps, convolutions, place = problem.maps, problem.convolutions, library.place
    generator = torch.Generator(place).manual_seed(problem.seed)
    weights: dict[str, list[Tensor]] = {name: [] for name in maps}
    for name, before, after in convolutions:
        spread = (before * max(maps[name].nnz / maps[name].num_rows, 1)) ** -0.5
        weights[name].append(library.drawn(generator, maps[name].relations, before, after, scale=spread))
    layers = {name: iter(library.relational(maps[name], some)) for name, some in weights.items()}
    in_order, parts = list[tuple[Layer, int, int]](), dict[str, Part]()
    for at, (name, before, after) in enumerate(convolutions):
        in_order.append((next(layers[name]), before, after))
        x = library.drawn(generator, maps[name].num_cols, before)
        parts[f"{at:02d} {name}"] = product_part(in_order[-1][0], x, False)
    order = iter(in_order)

    def dense(before: int, after: int) -> Tensor:
        return library.drawn(generator, before, after, scale=before**-0.5)

    def block() -> Layer:
        (first, before, after), (second, *_) = next(order), next(order)
        around = None if before == after else dense(before, after)
        return lambda x: (second(first(x).relu()) + (x if around is None else x @ around)).relu()

    def stage() -> tuple[Layer, Layer, Layer]:
        return next(order)[0], block(), block()

    stem, down, up = block(), [stage() for _ in range(4)], [stage() for _ in range(4)]
    classes = dense(convolutions[-1][2], problem.width)
    x = library.drawn(generator, maps["l0"].num_rows, problem.width_in)

    def forward() -> Tensor:
        kept = [stem(x)]
        for move, one, two in down:
            kept.append(two(one(move(kept[-1]).relu())))
        y = kept.pop()
        for move, one, two in up:
            y = two(one(torch.cat([move(y).relu(), kept.pop()], dim=1)))
        return y @ classes

    return Step(torch.no_grad()(forward), mode, place=place, parts=parts)
