"""The encoders of BERT (Devlin, Chang, Lee and Toutanova, NAACL 2019) with pruned linear layers, on random activations.

Embeddings and heads, which nobody prunes, are left out. LO-SpMM (Lin et al., ACM TACO 2024, section 7.4) has BERT-base
at 91 % with a batch of 32.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from spmark.impls.core.network import NetworkOp, NetworkProblem
from spmark.impls.core.problem import Csr
from spmark.impls.networks.models.libraries import Library
from spmark.impls.networks.models.step import Step, product_part

_HEAD = 64
_RATE = 1e-4
_LAYERS = ("qkv", "output", "up", "down")


def step(problem: NetworkProblem, library: Library, mode: str) -> Step:
    """Make the forward pass, or the step of training towards random activations."""
    trained, place = problem.op is NetworkOp.PRUNED_TRAINING, library.place
    tokens, weights = problem.width_in * problem.width, problem.pruned.parts(problem.matrix)
    features = weights[0].num_cols
    generator = torch.Generator(place).manual_seed(problem.seed)
    layers = []
    for weight in weights:
        bias = library.drawn(generator, weight.num_rows) / 8
        layers.append(library.linear(scaled(weight), bias, tokens, trained))
    module = nn.Sequential(
        *(_Encoder(layers[at : at + 4], features, problem.width) for at in range(0, len(layers), 4))
    ).to(place, library.dtype)
    x, target, wide = (
        library.drawn(generator, tokens, features),
        library.drawn(generator, tokens, features),
        library.drawn(generator, tokens, 4 * features),
    )
    parts = {}
    for at, (name, layer, weight) in enumerate(zip(_LAYERS * (len(layers) // 4), layers, weights, strict=True)):
        parts[f"{name} {at // 4}"] = product_part(layer, x if weight.num_cols == features else wide, trained)
    if not trained:
        return Step(torch.no_grad()(lambda: module(x)), mode, place=place, parts=parts)
    loss = lambda: F.mse_loss(module(x), target)  # noqa: E731
    return Step(loss, mode, module=module, rate=_RATE, place=place, parts=parts)


def scaled(weight: Csr, gain: float = 1.0) -> Csr:
    """Scale weights so that activations keep their variance: those of records have 7/12 on average."""
    spread = np.sqrt(max(weight.nnz / weight.num_rows, 1.0) * 7 / 12)
    return replace(weight, values=(weight.values * np.float32(gain / spread)))


class _Encoder(nn.Module):  # type: ignore[misc]
    def __init__(self, layers: list[nn.Module], features: int, batch: int) -> None:
        super().__init__()
        self.qkv, self.output, self.up, self.down = layers
        self.first, self.second, self._batch = nn.LayerNorm(features), nn.LayerNorm(features), batch

    def forward(self, x: Tensor) -> Tensor:
        tokens, features = x.shape
        heads = self.qkv(x).view(self._batch, tokens // self._batch, 3, features // _HEAD, _HEAD).permute(2, 0, 3, 1, 4)
        heads = heads if heads.stride(-1) == 1 else heads.contiguous()  # which fused attention needs
        seen = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(tokens, features)
        x = self.first(x + self.output(seen))
        return self.second(x + self.down(F.gelu(self.up(x))))
