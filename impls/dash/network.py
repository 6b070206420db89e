"""A whole cost model: featuriser, mapper and predictor, put together as a specification says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from numpy.typing import NDArray
from pydantic import Field

from spmark.impls.core.untrusted import Frozen
from spmark.impls.dash import featuriser, predictor
from spmark.impls.dash.encoders import EncoderKind
from spmark.impls.dash.featuriser import Featuriser, Pattern
from spmark.impls.dash.predictor import LATENT, SEQUENCES, PredictorKind
from spmark.impls.dash.sites import MAX_SIDE, MAX_SITES
from spmark.impls.dash.withtorch import Layers, Tensor, load_torch, seeded, to_numpy

_MOST_NUMBERS: Final = 4096
"""A file that claims a longer z or a larger grid is refused before memory is asked for."""


class NetworkSpec(Frozen):
    """Which parts a model has; the defaults are DASH's."""

    schema_version: Literal[1] = 1
    featuriser: Featuriser = Featuriser.DASH
    mapped: bool = True
    """Whether the model sees the common vector; without it, zeros stand there."""
    encoder: EncoderKind = EncoderKind.AUTOENCODER
    latent: int = Field(default=LATENT, ge=1, le=_MOST_NUMBERS)
    """Numbers of z: with augmentation, the sum of all platforms' slots."""
    predictor: PredictorKind = PredictorKind.MLP256
    max_sites: int = Field(default=MAX_SITES, ge=1)
    """Most active sites of a matrix (`spmark.impls.dash.sites.down_sample`)."""
    max_side: int = Field(default=MAX_SIDE, ge=1, le=_MOST_NUMBERS)
    """Most rows and columns of a matrix's grid."""


class Network:
    """Layers on a device.

    Parameters
    ----------
    spec : NetworkSpec
    seed : int
        Of the random weights: one seed gives the same bits.
    device : str
        PyTorch's name of the device.

    Raises
    ------
    ValueError
        The parts do not fit together.
    UnsupportedError
        PyTorch is not installed.
    """

    def __init__(self, spec: NetworkSpec, seed: int = 0, device: str = "cpu") -> None:
        self.spec, self.device = spec, device
        with seeded(seed):
            parts = {
                "featuriser": featuriser.build(spec.featuriser),
                "predictor": predictor.build(spec.predictor, spec.latent),
            }
            self.layers: Layers = load_torch().nn.ModuleDict(parts).to(device)

    def embed(self, pattern: Pattern) -> Tensor:
        """Give a matrix's embedding, (128,)."""
        return featuriser.embed(self.spec.featuriser, self.layers["featuriser"], pattern)

    def embed_configs(self, common: Tensor, latent: Tensor) -> Tensor:
        """Embed configs by their common vectors (n, 53) and their latent vectors (n, latent), whatever the matrix.

        Returns
        -------
        (n, numbers) tensor
            y and z side by side; their sum for `PredictorKind.MLP192`; WACO's embedding for `PredictorKind.WACO`.

        Raises
        ------
        ValueError
            The encoder gave vectors of another length.
        """
        if latent.shape[1] != self.spec.latent:
            raise ValueError(f"expected an encoder of {self.spec.latent} numbers, found {latent.shape[1]}")
        torch, kind, layers = load_torch(), self.spec.predictor, self.layers["predictor"]
        seen = common if self.spec.mapped else torch.zeros_like(common)
        if kind is PredictorKind.WACO:
            return layers["embedder"](torch.cat([seen, latent], 1))
        mapped = layers["mapper"](seen)
        return mapped + latent if kind is PredictorKind.MLP192 else torch.cat([mapped, latent], 1)

    def rank(self, matrix: Tensor, configs: Tensor) -> Tensor:
        """Score embedded configs of an embedded matrix, (n,); a higher score stands for a slower config."""
        layers = self.layers["predictor"]
        joined = load_torch().cat([matrix.expand(configs.shape[0], -1), configs], 1)
        if self.spec.predictor in SEQUENCES:
            read = layers["reader"](joined.view(-1, 4, LATENT) + layers["places"].weight)
            joined = read.mean(1) if self.spec.predictor is PredictorKind.TRANSFORMER else read[0][:, -1]
        return layers["head"](joined).squeeze(1)

    def wait(self) -> None:
        """Wait until the device has done what it was asked for; a processor has."""
        if self.device != "cpu":
            load_torch().cuda.current_stream().synchronize()

    def parameters(self, with_featuriser: bool = True) -> list[Tensor]:
        """Give the parameters that training may change, in a fixed order."""
        return list((self.layers if with_featuriser else self.layers["predictor"]).parameters())

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Give every weight by name, on the host."""
        return {name: to_numpy(tensor).copy() for name, tensor in self.layers.state_dict().items()}

    def take(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Replace every weight.

        Raises
        ------
        ValueError
            A weight is missing, unknown or of another shape: says which.
        """
        torch = load_torch()
        try:
            self.layers.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in tensors.items()})
        except RuntimeError as error:
            raise ValueError(f"expected the weights of {self.spec!r}, found others: {error}") from error

    def take_featuriser(self, other: Network) -> None:
        """Replace the featuriser's weights by those of another network, which stays as it is.

        Raises
        ------
        ValueError
            The other's featuriser, or its limits of down-sampling, differ.
        """
        mine, others = ((one.spec.featuriser, one.spec.max_sites, one.spec.max_side) for one in (self, other))
        if mine != others:
            raise ValueError(f"expected a featuriser of kind, sites and side {mine}, found {others}")
        self.layers["featuriser"].load_state_dict(other.layers["featuriser"].state_dict())
