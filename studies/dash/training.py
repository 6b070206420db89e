"""Pre-training on a source platform and fine-tuning on a target platform.

DASH (COGNATE), section 4.2, appendix A.4 and table 3: Adam with a rate of 1e-4, 100 epochs, batches of 32 samples, a
margin of 1. Here a batch is of one matrix. On a source platform a batch is all of the matrix's configs, so that the
featuriser runs once for all of its pairs. On a target platform, where few matrices would give few steps, a batch is 32
of them (`BATCH`).

Pre-training changes every weight of the network, unless it is given a featuriser. Fine-tuning leaves the featuriser as
it is, so that matrices are embedded once, and changes mapper and predictor. The latent encoder is fitted beforehand and
changes in neither.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.frozen import Frozen
from spmark.impls.dash import tensorfile
from spmark.impls.dash.encoders import Encoder
from spmark.impls.dash.featuriser import Pattern
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.weights import ModelCard, SampleCard, TrainedModel
from spmark.impls.dash.withtorch import Tensor, load_torch, quick_products, to_numpy
from spmark.studies.dash.checkpoints import Checkpoint, Epoch
from spmark.studies.dash.embeddings import Embedding, Embeddings
from spmark.studies.dash.ranking import Pairs, ranking_loss
from spmark.studies.dash.samples import MatrixSamples, SampleSet, check_samples
from spmark.studies.orders import kendall

BATCH: Final = 32
"""Configs of a batch on a target platform."""
_SAVED_EVERY_S = 10
"""Writing a state may take as long as an epoch, so that not every epoch's is written."""
_MADE_WITH = ("torch", "safetensors", "numpy")

_Measures = tuple[float, float, float]


class TrainingSettings(Frozen):
    """How a model is trained; the defaults are the paper's, but for `noise` and `batch`."""

    epochs: int = 100
    rate: float = 1e-4
    margin: float = 1.0
    noise: float = 0.0
    """Pairs of times that differ by no more than this share are left out: the A/A spread of the platform."""
    batch: int | None = Field(default=None, ge=2)
    """Configs of one matrix in a step; all of them by default."""
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


def pretrain(
    spec: NetworkSpec, encoder: Encoder, samples: SampleSet, settings: TrainingSettings, session: Session = PLAIN
) -> tuple[TrainedModel, Sequence[Epoch]]:
    """Train a new network on a source platform.

    Parameters
    ----------
    spec : NetworkSpec
    encoder : Encoder
        Of the source platform.
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
        No matrix has two configs whose times differ by more than noise, vectors have another length, or sites were made
        with other limits.
    ValueError
        The given featuriser is of another kind, or the encoder has another length.
    BuildError
        The checkpoint is of another training, or cannot be read or written.
    UnsupportedError
        PyTorch is not installed.
    OutOfTime
        The session's time is up before the last epoch.
    """
    network = Network(spec, settings.seed, session.device)
    given = session.featuriser_of
    if given is not None:
        network.take_featuriser(given.network)
    before = given.card.trained_on if given else ()
    return _trained(network, encoder, samples, settings, session, frozen=given is not None, before=before)


def fine_tune(
    source: TrainedModel, encoder: Encoder, samples: SampleSet, settings: TrainingSettings, session: Session = PLAIN
) -> tuple[TrainedModel, Sequence[Epoch]]:
    """Go on from a source platform's model on a target platform; the source's model stays as it is.

    Parameters
    ----------
    source : TrainedModel
    encoder : Encoder
        Of the target platform.
    samples : SampleSet
    settings : TrainingSettings
    session : Session

    Returns
    -------
    model : TrainedModel
    curve : sequence of Epoch

    Raises
    ------
    DatasetError, ValueError, BuildError, UnsupportedError, OutOfTime
        As `pretrain`.
    """
    network = Network(source.card.spec, settings.seed, session.device)
    network.take(source.network.tensors())
    return _trained(network, encoder, samples, settings, session, frozen=True, before=source.card.trained_on)


def retargeted(source: TrainedModel, encoder: Encoder, samples: SampleSet) -> TrainedModel:
    """Give the source's model as it scores the platform of ``samples`` without any fine-tuning: zero-shot."""
    return TrainedModel(source.card.model_copy(update={"subject": samples.subject}), source.network, encoder)


@dataclass(frozen=True, eq=False)
class _Batch:
    """One matrix on the device."""

    pattern: Pattern | None
    embedding: Tensor | None
    """Where the featuriser stays as it is."""
    common: Tensor
    latent: Tensor
    pairs: Pairs
    slower: Tensor
    faster: Tensor
    seconds: NDArray[np.float64]

    def look(self, network: Network, margin: float) -> tuple[Tensor, Tensor]:
        """Give the configs' scores, and their ranking loss."""
        embedding = self.embedding if self.pattern is None else network.embed(self.pattern)
        scores = network.rank(embedding, network.embed_configs(self.common, self.latent))
        return scores, ranking_loss(scores, self.slower, self.faster, margin)

    def parts(self, size: int, noise: float, order: NDArray[np.int64]) -> Iterator[_Batch]:
        """Divide the configs, in an order, into batches of at most ``size``."""
        torch = load_torch()
        for at in range(0, len(order), size):
            chosen = order[at : at + size]
            pairs = Pairs.of(self.seconds[chosen], noise)
            index, slower, faster = (
                torch.from_numpy(array).to(self.common.device) for array in (chosen, pairs.slower, pairs.faster)
            )
            yield replace(
                self, common=self.common[index], latent=self.latent[index], pairs=pairs, slower=slower, faster=faster,
                seconds=self.seconds[chosen],
            )  # fmt: skip

    def measures(self, scores: Tensor, loss: Tensor) -> _Measures:
        """Give PRL, OPA and Kendall's tau; NaN where the matrix has none."""
        if not self.pairs.slower.size:
            return float("nan"), float("nan"), float("nan")
        found = to_numpy(scores)
        return float(loss), self.pairs.share_in_order(found), kendall(found, self.seconds)


def _trained(
    network: Network,
    encoder: Encoder,
    samples: SampleSet,
    settings: TrainingSettings,
    session: Session,
    *,
    frozen: bool,
    before: tuple[SampleCard, ...],
) -> tuple[TrainedModel, Sequence[Epoch]]:
    embeddings = (session.embeddings or Embeddings()) if frozen else None
    batches, prepared = _batches(network, encoder, samples, settings.noise, embeddings)
    if not any(batch.pairs.slower.size for batch in batches):
        raise DatasetError(
            f"expected a matrix with two configs whose times differ by more than {settings.noise:.1%}, "
            f"found none among {len(batches)} matrices"
        )
    held = _batches(network, encoder, session.held_out, settings.noise, embeddings)[0] if session.held_out else []
    optimizer = load_torch().optim.Adam(network.parameters(with_featuriser=not frozen), lr=settings.rate)
    key = _key(network, encoder, samples, settings, session)
    checkpoint = Checkpoint(session.checkpoint, key) if session.checkpoint else None
    curve = checkpoint.resume(network, optimizer) if checkpoint else []
    for number in range(len(curve), settings.epochs):
        is_over = time.monotonic() >= session.ends
        if checkpoint and (is_over or checkpoint.age_s >= _SAVED_EVERY_S):
            checkpoint.save(network, optimizer, curve)
        if is_over:
            raise OutOfTime
        with quick_products(session.device):
            curve.append(_epoch(network, optimizer, batches, held, settings, number=number, prepared=prepared))
        prepared = 0.0
        session.tell(f"epoch {number + 1} of {settings.epochs}: {_told(curve[-1])}")
    if checkpoint:
        checkpoint.save(network, optimizer, curve)
    card = ModelCard(
        subject=samples.subject,
        spec=network.spec,
        trained_on=(*before, samples.card),
        seed=settings.seed,
        command=session.command,
        made_with={name: version(name) for name in _MADE_WITH},
        scores=curve[-1].known() if curve else {},
    )
    return TrainedModel(card, network, encoder), curve


def _batches(
    network: Network, encoder: Encoder, samples: SampleSet, noise: float, embeddings: Embeddings | None
) -> tuple[list[_Batch], float]:
    """Put all matrices on the device; gives the seconds of that, as if no embedding had been there before."""
    torch = load_torch()
    limits = network.spec.max_sites, network.spec.max_side
    check_samples(samples, encoder.maps[0][0].shape[0], limits)
    embedded = list(map(embeddings.by(network), samples.matrices)) if embeddings else [None] * len(samples.matrices)
    started = time.perf_counter()

    def batch(one: MatrixSamples, embedding: Embedding | None) -> _Batch:
        pattern = None if embedding else Pattern.of(one.sites, one.sizes, network.device)
        pairs = Pairs.of(one.seconds, noise)
        arrays = one.common, encoder.encode(one.own), pairs.slower, pairs.faster
        common, latent, slower, faster = (torch.from_numpy(array).to(network.device) for array in arrays)
        vector = embedding.vector if embedding else None
        return _Batch(pattern, vector, common, latent, pairs, slower, faster, one.seconds)

    batches = list(map(batch, samples.matrices, embedded))
    return batches, time.perf_counter() - started + sum(one.seconds for one in embedded if one)


def _epoch(
    network: Network,
    optimizer: Any,
    batches: list[_Batch],
    held: list[_Batch],
    settings: TrainingSettings,
    *,
    number: int,
    prepared: float,
) -> Epoch:
    """Take one step for each batch, in an order that the seed and the number of the epoch decide.

    Measures are taken after all steps, so that the host need not wait for a GPU in between.
    """
    draw = np.random.default_rng((settings.seed, number))
    started = time.perf_counter()
    if settings.batch is None:
        looks = [
            (batches[place], *_step(network, optimizer, batches[place], settings.margin))
            for place in draw.permutation(len(batches))
        ]
        trained = [batch.measures(scores, loss) for batch, scores, loss in looks]
    else:
        trained = _looks(network, batches, settings.margin)
        parts = [
            part
            for one in batches
            for part in one.parts(settings.batch, settings.noise, draw.permutation(len(one.seconds)))
        ]
        for place in draw.permutation(len(parts)):
            _step(network, optimizer, parts[place], settings.margin)
    network.wait()
    seconds = prepared + time.perf_counter() - started
    held_out = _looks(network, held, settings.margin)
    names = ("prl", "opa", "tau")
    means = dict(zip(names, _means(trained), strict=True))
    means |= {f"held_{name}": mean for name, mean in zip(names, _means(held_out), strict=True)}
    return Epoch(**means, seconds=seconds)


def _step(network: Network, optimizer: Any, batch: _Batch, margin: float) -> tuple[Tensor, Tensor]:
    """Take a step, and give scores and loss of before; a batch without pairs changes nothing."""
    scores, loss = batch.look(network, margin)
    if batch.pairs.slower.size:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return scores.detach(), loss.detach()


def _looks(network: Network, batches: Sequence[_Batch], margin: float) -> list[_Measures]:
    with load_torch().no_grad():
        looks = [(batch, *batch.look(network, margin)) for batch in batches]
    return [batch.measures(scores, loss) for batch, scores, loss in looks]


def _means(measures: list[_Measures]) -> list[float | None]:
    """Give the mean of each measure over the matrices that have it."""
    table = np.array(measures, np.float64).reshape(-1, 3)
    return [float(column.mean()) if (column := one[np.isfinite(one)]).size else None for one in table.T]


def _told(epoch: Epoch) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in epoch.known().items())


def _key(network: Network, encoder: Encoder, samples: SampleSet, settings: TrainingSettings, session: Session) -> str:
    """Digest all that decides the bits of a training, but for the number of its epochs."""
    texts = (
        network.spec.model_dump_json(),
        settings.model_dump_json(exclude={"epochs"}),
        tensorfile.digest_of(network.tensors()),
        tensorfile.digest_of(encoder.tensors()),
        samples.digest,
        session.held_out.digest if session.held_out else "",
        str(session.featuriser_of is not None),
    )
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
