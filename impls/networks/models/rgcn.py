"""Inference by RGCN (Schlichtkrull et al., ESWC 2018): two layers of relational sums with ReLU between.

SparseTIR (Ye et al., ASPLOS 2023, section 4.4.1) has 32 features in each layer. As there, nodes have no weights of
their own, and a layer is the relational product alone.
"""

from __future__ import annotations

from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports]

from spmark.impls.core.network import RELATIONAL_HIDDEN, NetworkProblem
from spmark.impls.networks.models.libraries import Library
from spmark.impls.networks.models.step import Step, product_part


def step(problem: NetworkProblem, library: Library, mode: str) -> Step:
    """Make the forward pass of random features; weights keep the variance of a row with as many edges as the mean."""
    graph, place = problem.graph, library.place
    generator = torch.Generator(place).manual_seed(problem.seed)
    spread = (problem.width_in * max(graph.nnz / graph.num_rows, 1)) ** -0.5
    sizes = problem.width_in, RELATIONAL_HIDDEN, problem.width
    weights = [library.drawn(generator, graph.relations, *two, scale=spread) for two in pairwise(sizes)]
    first, second = library.relational(graph, weights)
    x, hidden = (library.drawn(generator, graph.num_rows, width) for width in sizes[:2])
    parts = {"layer 0": product_part(first, x, False), "layer 1": product_part(second, hidden, False)}
    return Step(torch.no_grad()(lambda: second(first(x).relu())), mode, place=place, parts=parts)
