"""Attention of several heads under a sparse mask, forward and backward (Vaswani et al., NeurIPS 2017)."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core.network import NetworkProblem
from spmark.impls.networks.models.libraries import Library
from spmark.impls.networks.models.step import Step


def step(problem: NetworkProblem, library: Library, mode: str) -> Step:
    """Make the step: the heads' outputs, and the gradients of Q, K and V for a random gradient of theirs."""
    attend = library.attention(problem.matrix, problem.width_in, problem.width)
    generator = torch.Generator(library.place).manual_seed(problem.seed)
    shape = problem.matrix.num_rows, problem.width
    *given, along = (library.drawn(generator, *shape) for _ in range(4))
    given = [one.requires_grad_() for one in given]

    def both() -> tuple[Tensor, ...]:
        out = attend(*given)
        return out.detach(), *torch.autograd.grad(out, given, along)

    return Step(both, mode, place=library.place, parts={"forward": torch.no_grad()(lambda: attend(*given))})
