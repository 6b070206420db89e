"""Pre-training on a source platform and fine-tuning on a target platform.

DASH (COGNATE), section 4.2, appendix A.4 and table 3: Adam with a rate of 1e-4, 100 epochs, batches of 32 samples, a
margin of 1. Here a batch is of one matrix. On a source platform a batch is all of the matrix's configs, so that the
featuriser runs once for all of its pairs. On a target platform, where few matrices would give few steps, a batch is 32
of them (`BATCH`).

Pre-training changes every weight of the network, unless it is given a featuriser. Fine-tuning leaves the featuriser as
it is, so that matrices are embedded once, and changes mapper and predictor; `TrainingSettings.frozen` lets it change
the featuriser, too. The latent encoder is fitted beforehand and changes in neither.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic import Field

from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.core.files import digest_of_arrays, written
from spmark.impls.core.untrusted import Frozen, reading
from spmark.impls.dash import tensorfile
from spmark.impls.dash.encoders import Encoder
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.weights import ModelCard, TrainedModel
from spmark.impls.dash.withtorch import Tensor, computer, load_torch, quick_products, to_numpy
from spmark.studies.dash.samples import MatrixSamples, SampleSet
from spmark.studies.dash.steps import Configs

BATCH: Final = 32
"""Configs of a batch on a target platform."""
_SAVED_EVERY_S = 10
"""Writing a state may take as long as an epoch, so that not every epoch's is written."""
_MADE_WITH = ("torch", "safetensors", "numpy")

Embeddings = dict[tuple[str, str, bytes], tuple[Tensor, float]]
"""Embeddings with their seconds, by the featuriser's weights and the matrix (`embedder`)."""


class Epoch(NamedTuple):
    """One point of the curves."""

    values: dict[str, float]
    """Means over the matrices that have a value; what no matrix has is left out.

    ``prl``, ``opa`` and ``tau`` are ranking loss, ordered pair accuracy and Kendall's tau on the samples of training,
    each matrix before its first step of the epoch; with ``held_``, on held-out samples at the end of the epoch.
    """
    seconds: float
    """Of the steps, without those of the held-out values; an epoch that begins or goes on counts its preparation."""
    on: tuple[str, int]
    """What computed (`computer`): a training may go on elsewhere."""


class TrainingSettings(Frozen):
    """How a model is trained; the defaults are the paper's, but for `noise` and `batch`."""

    epochs: int = 100
    rate: float = 1e-4
    margin: float = 1.0
    noise: float = 0.0
    """Pairs of times that differ by no more than this share are left out: the A/A spread of the platform."""
    batch: int | None = Field(default=None, ge=2)
    """Configs of one matrix in a step; all of them by default."""
    frozen: bool = True
    """Whether fine-tuning leaves the featuriser as it is."""
    seed: int = 0
    """Of the first weights, and of the order of matrices and batches."""


@dataclass(frozen=True)
class Session:
    """What belongs to one training, beside its samples and settings."""

    held_out: SampleSet | None = None
    """Samples for the curves of held-out matrices; they change no weight."""
    checkpoint: Path | None = None
    """File for the state between two epochs. Where the file exists, training goes on from there."""
    featuriser_of: TrainedModel | None = None
    """Pre-training takes the featuriser of this model over and leaves it as it is: matrices are then embedded once."""
    embeddings: Embeddings | None = None
    """Embeddings by featurisers that stay as they are, which several trainings share."""
    device: str = "cpu"
    """PyTorch's name of the device."""
    command: str = ""
    """The command line without folders, for the model's card."""
    tell: Callable[[str], None] = lambda line: None
    """Receives a line on every epoch."""
    ends: float = math.inf
    """Time of the monotonic clock, in seconds, after which no epoch begins."""


PLAIN = Session()


class OutOfTime(Exception):
    """The time of a session is up; its checkpoint holds the epochs so far."""


def embedder(network: Network, made: Embeddings) -> Callable[[MatrixSamples], tuple[Tensor, float]]:
    """Give what embeds matrices by the featuriser that the network has now, each matrix once.

    Parameters
    ----------
    network : Network
    made : dict
        Embeddings so far, which are added to.

    Returns
    -------
    callable
        Gives a matrix's embedding, (128,) float32, and the seconds that making it took, without down-sampling.
    """
    weights = digest_of_arrays(tensorfile.part_of(network.tensors(), "featuriser"))
    which = f"{weights} {network.spec.featuriser} {network.device}"

    def embed(one: MatrixSamples) -> tuple[Tensor, float]:
        key = which, one.matrix, one.sizes.tobytes()
        if key not in made:
            started = time.perf_counter()
            with load_torch().no_grad():
                vector = network.embed(Pattern.of(one.sites, one.sizes, network.device))
            to_numpy(vector)  # waits for the device
            made[key] = vector, time.perf_counter() - started
        return made[key]

    return embed


def train(
    what: NetworkSpec | TrainedModel,
    encoder: Encoder,
    samples: SampleSet,
    settings: TrainingSettings,
    session: Session = PLAIN,
) -> tuple[TrainedModel, Sequence[Epoch]]:
    """Train a new network on a source platform, or go on from that platform's model, which stays as it is, on a target.

    Parameters
    ----------
    what : NetworkSpec or TrainedModel
    encoder : Encoder
        Of the platform of the samples.
    samples : SampleSet
    settings : TrainingSettings
    session : Session

    Returns
    -------
    model : TrainedModel
    curve : sequence of Epoch

    Raises
    ------
    DatasetError
        No matrix has two configs whose times differ by more than noise.
    ValueError
        The given featuriser is of another kind, or the encoder has another length.
    BuildError
        The checkpoint is of another training, or cannot be read or written.
    UnsupportedError
        PyTorch is not installed.
    OutOfTime
        The session's time is up before the last epoch.
    """
    before = what if isinstance(what, TrainedModel) else session.featuriser_of
    network = Network(what if isinstance(what, NetworkSpec) else what.card.spec, settings.seed, session.device)
    if isinstance(what, TrainedModel):
        network.take(what.network.tensors())
    elif before:
        network.take_featuriser(before.network)
    fixed = session.featuriser_of is not None or (before is not None and settings.frozen)
    made = ({} if session.embeddings is None else session.embeddings) if fixed else None
    if not any(one.seconds.max() > (1 + settings.noise) * one.seconds.min() for one in samples.matrices):
        raise DatasetError(
            f"expected a matrix with two configs whose times differ by more than {settings.noise:.1%}, "
            f"found none among {len(samples.matrices)} matrices"
        )
    configs, prepared_s = _configs(network, encoder, samples, settings, made)
    held = _configs(network, encoder, session.held_out, settings, made)[0] if session.held_out else None
    on_gpu = dict.fromkeys(("capturable", "fused"), session.device != "cpu")
    optimizer = load_torch().optim.Adam(network.parameters(with_featuriser=not fixed), lr=settings.rate, **on_gpu)
    path, key = session.checkpoint, _key(network, encoder, samples, settings, session)
    curve = _resumed(path, key, network, optimizer) if path and path.is_file() else []
    saved = time.monotonic()
    for number in range(len(curve), settings.epochs):
        is_over = time.monotonic() >= session.ends
        if path and (is_over or time.monotonic() - saved >= _SAVED_EVERY_S):
            _save(path, key, network, optimizer, curve)
            saved = time.monotonic()
        if is_over:
            raise OutOfTime
        with quick_products(session.device):
            curve.append(_epoch(network, optimizer, configs, held, settings, number=number, prepared_s=prepared_s))
        prepared_s = 0.0
        told = ", ".join(f"{name} {value:.3f}" for name, value in curve[-1].values.items())
        session.tell(f"epoch {number + 1} of {settings.epochs}: {told}")
    if path:
        _save(path, key, network, optimizer, curve)
    card = ModelCard(
        subject=samples.subject,
        spec=network.spec,
        trained_on=(*(before.card.trained_on if before else ()), samples.card),
        seed=settings.seed,
        command=session.command,
        made_with={name: version(name) for name in _MADE_WITH},
        scores=curve[-1].values if curve else {},
    )
    return TrainedModel(card, network, encoder), curve


def _save(path: Path, key: str, network: Network, optimizer: Any, curve: list[Epoch]) -> None:
    """Write weights, the optimizer's state and the curve: on a CPU, a training that goes on gives the same bits."""
    parts = {"network": network.layers.state_dict(), "optimizer": optimizer.state_dict()}
    with written(path, BuildError) as part:
        load_torch().save({"key": key, "curve": list(map(tuple, curve)), **parts}, part)


def _resumed(path: Path, key: str, network: Network, optimizer: Any) -> list[Epoch]:
    """Take the state over; gives the curve so far."""
    with reading(path, "the state of a training", BuildError):
        state = load_torch().load(path, network.device, weights_only=True)
        if state["key"] != key:
            raise BuildError(
                f"{path}: expected the checkpoint of this training, {key[:16]}, found that of another, "
                f"{state['key'][:16]}; name another file, or remove this one"
            )
        network.layers.load_state_dict(state["network"])
        # The groups' settings are this device's own: another kind of device may have written the file.
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state["optimizer"]["state"]})
        return [Epoch(*epoch) for epoch in state["curve"]]


def _configs(
    network: Network, encoder: Encoder, samples: SampleSet, settings: TrainingSettings, made: Embeddings | None
) -> tuple[Configs, float]:
    """Put all configs on the device; gives the seconds of that, as if no embedding had been there before."""
    embedded = None if made is None else list(map(embedder(network, made), samples.matrices))
    started = time.perf_counter()
    vectors = embedded and [vector for vector, _ in embedded]
    configs = Configs(network, encoder, samples.matrices, vectors, noise=settings.noise, margin=settings.margin)
    return configs, time.perf_counter() - started + sum(seconds for _, seconds in embedded or ())


def _epoch(
    network: Network,
    optimizer: Any,
    configs: Configs,
    held: Configs | None,
    settings: TrainingSettings,
    *,
    number: int,
    prepared_s: float,
) -> Epoch:
    """Take one step for each batch, in an order that the seed and the number of the epoch decide.

    Measures are taken after all steps, so that the host need not wait for a GPU in between.
    """
    draw, started = np.random.default_rng((settings.seed, number)), time.perf_counter()
    if settings.batch is None:
        parts = [(int(matrix), np.arange(configs.counts[matrix])) for matrix in draw.permutation(len(configs.counts))]
        configs.steps(optimizer, parts, max(configs.counts))
        seen = configs.scores
    else:
        seen = configs.look()
        parts = [
            (matrix, part)
            for matrix, count in enumerate(configs.counts)
            for part in np.split(draw.permutation(count), range(settings.batch, count, settings.batch))
        ]
        configs.steps(optimizer, [parts[place] for place in draw.permutation(len(parts))], settings.batch)
    network.wait()
    seconds, means = prepared_s + time.perf_counter() - started, dict[str, float]()
    for prefix, of, scores in (("", configs, seen), ("held_", held, held.look() if held else None)):
        table = of.measures(scores) if of else np.empty((0, 3))
        for name, column in zip(("prl", "opa", "tau"), table.T, strict=True):
            if (known := column[np.isfinite(column)]).size:
                means[prefix + name] = float(known.mean())
    return Epoch(means, seconds, computer(network.device))


def _key(network: Network, encoder: Encoder, samples: SampleSet, settings: TrainingSettings, session: Session) -> str:
    """Digest all that decides the bits of a training, but for the number of its epochs."""
    texts = (
        network.spec.model_dump_json(),
        settings.model_dump_json(exclude={"epochs"}),
        digest_of_arrays(network.tensors()),
        digest_of_arrays(encoder.tensors()),
        samples.digest,
        session.held_out.digest if session.held_out else "",
        str(session.featuriser_of is not None),
    )
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
