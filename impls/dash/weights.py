"""A trained model as one file: its weights, its encoder, and a card that says what it knows and where it comes from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import digest_of_arrays
from spmark.impls.core.problem import Op
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.impls.dash import tensorfile
from spmark.impls.dash.encoders import Encoder, encoder_from
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.withtorch import Tensor, load_torch, to_numpy

CARD: Final = "card"
"""Name of the card among a file's texts."""


class Subject(Frozen):
    """What the scores of a model are about; a file of another subject is refused."""

    platform: str
    """Name of the platform, such as ``cpu``."""
    op: Op
    space_digest: str
    """`spmark.impls.tuning.space.Space.digest` of the platform's configs."""
    parameters_digest: str
    """`spmark.impls.dash.parameters.OwnParameters.digest`: which number stands for which value."""


class SampleCard(Frozen):
    """Samples that a model was trained on."""

    platform: str
    matrices: int
    samples: int
    sha256: str
    """`spmark.studies.dash.samples.SampleSet.digest`."""


class ModelCard(Frozen):
    """Facts about a model."""

    schema_version: Literal[1] = 1
    subject: Subject
    spec: NetworkSpec
    trained_on: tuple[SampleCard, ...]
    """Samples of a featuriser that was taken over, then those of pre-training, then those of fine-tuning."""
    seed: int
    command: str = ""
    """The command line without folders."""
    made_with: dict[str, str] = {}
    """Versions by package."""
    scores: dict[str, float] = {}
    """Held-out scores of the last epoch by name."""
    featuriser: str = ""
    """Name of a file in the same folder that holds the featuriser's weights, which several models share."""
    digest: str = ""
    """SHA-256 over all weights and the rest of the card; `TrainedModel.save` fills it in."""

    def sealed(self, tensors: tensorfile.Tensors) -> ModelCard:
        """Give the card with the digest that it has with these weights."""
        unsaid = set() if self.featuriser else {"featuriser"}
        rest = self.model_copy(update={"digest": ""}).model_dump_json(exclude=unsaid)
        digest = hashlib.sha256(f"{digest_of_arrays(tensors)}\n{rest}".encode()).hexdigest()
        return self.model_copy(update={"digest": digest})


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network that scores the configs of one platform."""

    card: ModelCard
    network: Network
    encoder: Encoder

    def tensors(self) -> tensorfile.Tensors:
        """Give all weights by name: ``network.`` and ``encoder.``."""
        parts = {"network": self.network.tensors(), "encoder": self.encoder.tensors()}
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def rank(self, matrix: Tensor, common: NDArray[np.float32], own: NDArray[np.float32]) -> NDArray[np.float64]:
        """Score configs of an embedded matrix, (n,) float64; a higher score stands for a slower config.

        Parameters
        ----------
        matrix : (128,) tensor
        common : (n, 53) float32
        own : (n, size) float32
            Numbers that the encoder reads.
        """
        torch, network = load_torch(), self.network
        with torch.no_grad():
            vectors = (torch.from_numpy(one).to(network.device) for one in (common, self.encoder.encode(own)))
            return to_numpy(network.rank(matrix, network.embed_configs(*vectors))).astype(np.float64)

    def save(self, path: Path) -> ModelCard:
        """Write the file; gives the card with the digest.

        Raises
        ------
        BuildError
            The file cannot be written.
        """
        tensors = self.tensors()
        card = self.card.sealed(tensors)
        tensorfile.write(path, tensors, {CARD: card.model_dump_json()})
        return card


def load(path: Path, subject: Subject | None = None, device: str = "cpu") -> TrainedModel:
    """Read a file, check all of it, and put the network on a device.

    Parameters
    ----------
    path : Path
    subject : Subject, optional
        What the model will be asked about; whatever the file's model is about by default.
    device : str
        PyTorch's name of the device.

    Raises
    ------
    BuildError
        The file is missing, damaged, of another schema or of another subject, or its weights fit neither the card nor
        each other.
    UnsupportedError
        PyTorch or safetensors is not installed.
    """
    tensors, texts = tensorfile.read(path)
    if CARD not in texts:
        raise BuildError(f"{path}: expected a model with a card, found {', '.join(sorted(texts)) or 'no texts'}")
    with reading(path, "the card of a model of schema 1", BuildError):
        card = parse_model(ModelCard, texts[CARD].encode())
    for name, expected in subject or ():
        if getattr(card.subject, name) != expected:
            raise BuildError(
                f"{path}: expected a model whose {name} is {expected}, found {getattr(card.subject, name)}; "
                "train a model for this platform, operator and space"
            )
    if card.featuriser:
        if Path(card.featuriser).name != card.featuriser:
            raise BuildError(f"{path}: expected the name of a file in its folder, found {card.featuriser!r}")
        tensors |= tensorfile.read(path.parent / card.featuriser)[0]
    if (found := card.sealed(tensors).digest) != card.digest:
        raise BuildError(f"{path}: expected the digest {card.digest}, found {found}: the file is damaged")
    try:
        tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
        if wild := [name for name, array in tensors.items() if not np.isfinite(array).all()]:
            raise ValueError(f"expected finite numbers, found NaN or infinity in {', '.join(wild)}")
        network = Network(card.spec, device=device)
        network.take(tensorfile.part_of(tensors, "network"))
        encoder = encoder_from(tensorfile.part_of(tensors, "encoder"))
        if encoder.size != card.spec.latent:
            raise ValueError(f"expected an encoder of {card.spec.latent} numbers, found {encoder.size}")
    except (ValueError, KeyError, IndexError) as error:
        raise BuildError(f"{path}: expected the weights that the card's parts have, found others: {error}") from error
    return TrainedModel(card, network, encoder)
