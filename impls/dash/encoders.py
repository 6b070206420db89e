"""The latent encoder: a platform's own parameters as a vector of one length for all platforms.

DASH (COGNATE), section 3.4 and figure 9: an auto-encoder, a variational one, principal components, and feature
augmentation (Daume, "Frustratingly Easy Domain Adaptation", 2007), which gives every platform slots of its own and
leaves the others zero. One encoder belongs to one platform and one operator. Each kind is a chain of affine maps when
it encodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.predictor import LATENT
from spmark.impls.dash.withtorch import Layers, load_torch, seeded, to_numpy

_HIDDEN: Final = 64
_RATE: Final = 1e-3
_STEPS: Final = 500
_KL: Final = 1e-3
"""Weight of the VAE's distance from a normal distribution: its mean over numbers stands beside a mean squared error."""


class EncoderKind(StrEnum):
    """How own parameters become z."""

    AUTOENCODER = "autoencoder"
    VAE = "vae"
    PCA = "pca"
    AUGMENTED = "augmented"
    NONE = "none"
    """z is zero: the ablation without the latent encoder."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """Affine maps with ReLU between them."""

    maps: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    """For each map, (before, after) weights and (after,) offsets."""

    @property
    def size(self) -> int:
        """Numbers of z."""
        return int(self.maps[-1][1].shape[0])

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give z of each row, (n, size) float32."""
        for number, (weights, offsets) in enumerate(self.maps):
            vectors = (np.maximum(vectors, 0) if number else vectors) @ weights + offsets
        return vectors

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Give the weights by name, as `encoder_from` takes them."""
        names = ("weights", "offsets")
        return {f"{n}.{name}": one for n, both in enumerate(self.maps) for name, one in zip(names, both, strict=True)}


def encoder_from(tensors: Mapping[str, NDArray[np.float32]]) -> Encoder:
    """Put an encoder together from the weights that `Encoder.tensors` gave.

    Raises
    ------
    KeyError
        A map lacks its weights or offsets.
    ValueError
        A map does not take what the one before gives.
    """
    maps = tuple((tensors[f"{n}.weights"], tensors[f"{n}.offsets"]) for n in range(len(tensors) // 2))
    shapes = [(weights.shape, offsets.shape) for weights, offsets in maps]
    chained = all(len(weights) == 2 and offsets == weights[1:] for weights, offsets in shapes)
    if not chained or any(first[1] != then[0][:1] for first, then in pairwise(shapes)):
        raise ValueError(f"expected maps of (before, after) weights and (after,) offsets that chain, found {shapes}")
    return Encoder(maps)


def fit(kind: EncoderKind, vectors: NDArray[np.float32], seed: int = 0) -> Encoder:
    """Fit an encoder to a platform's own parameters.

    Parameters
    ----------
    kind : EncoderKind
        All but `AUGMENTED`, which `augmented` makes.
    vectors : (n, size) float32
        Every combination of the own parameters; more of the same rows change nothing.
    seed : int

    Raises
    ------
    ValueError
        The kind needs the sizes of all platforms.
    UnsupportedError
        PyTorch, which auto-encoders need, is not installed.
    """
    rows = np.unique(vectors, axis=0)
    if kind is EncoderKind.NONE:
        return Encoder(((np.zeros((rows.shape[1], LATENT), np.float32), np.zeros(LATENT, np.float32)),))
    if kind is EncoderKind.PCA:
        return _components(rows)
    if kind is EncoderKind.AUGMENTED:
        raise ValueError("expected an encoder that is fitted, found augmented: use encoders.augmented")
    return _autoencoder(rows, seed, variational=kind is EncoderKind.VAE)


def augmented(platform: str, slots: Mapping[str, int]) -> Encoder:
    """Give the encoder that copies a platform's numbers into its slots.

    Parameters
    ----------
    platform : str
    slots : mapping of str to int
        Numbers of every platform that a model will meet, in their order.
    """
    names = list(slots)
    before = sum(slots[name] for name in names[: names.index(platform)])
    return padded(slots[platform], sum(slots.values()), before)


def padded(size: int, latent: int, before: int = 0) -> Encoder:
    """Give the encoder that copies ``size`` numbers behind ``before`` zeros, and fills up to ``latent`` with zeros."""
    copies = np.eye(size, latent, before, dtype=np.float32)
    return Encoder(((copies, np.zeros(latent, np.float32)),))


def _components(rows: NDArray[np.float32]) -> Encoder:
    mean = rows.mean(0, dtype=np.float64)
    _, _, directions = np.linalg.svd(rows - mean, full_matrices=False)
    # The sign of a direction is arbitrary: its largest number is made positive.
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(1)])
    kept = (directions * signs[:, None])[:LATENT]
    weights = np.zeros((rows.shape[1], LATENT))
    weights[:, : len(kept)] = kept.T
    return Encoder(((weights.astype(np.float32), (-mean @ weights).astype(np.float32)),))


def _autoencoder(rows: NDArray[np.float32], seed: int, variational: bool) -> Encoder:
    """Train in - 64 - z (64) - 64 - in by the mean squared error, on all rows at once."""
    torch = load_torch()
    nn, size = torch.nn, rows.shape[1]
    given = torch.from_numpy(rows)
    with seeded(seed):
        latent = 2 * LATENT if variational else LATENT
        encoder = nn.Sequential(nn.Linear(size, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, latent))
        decoder = nn.Sequential(nn.Linear(LATENT, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, size))
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=_RATE)
        for _ in range(_STEPS):
            optimizer.zero_grad()
            z, apart = encoder(given), 0.0
            if variational:
                mean, log_variance = z.chunk(2, 1)
                z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
                apart = _KL * (mean.square() + log_variance.exp() - log_variance - 1).mean() / 2
            loss = nn.functional.mse_loss(decoder(z), given) + apart
            loss.backward()
            optimizer.step()
    return Encoder((_affine(encoder[0]), _affine(encoder[2], LATENT)))


def _affine(layer: Layers, kept: int | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Give the first ``kept`` results of a `torch.nn.Linear` as (before, after) weights and offsets."""
    return np.ascontiguousarray(to_numpy(layer.weight)[:kept].T), to_numpy(layer.bias)[:kept].copy()
