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
from dataclasses import dataclass
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
from spmark.impls.dash.mapping import COMMON_SIZE
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.sites import MAX_SIDE, MAX_SITES
from spmark.impls.dash.weights import ModelCard, SampleCard, TrainedModel
from spmark.impls.dash.withtorch import Tensor, load_torch, quick_products, to_numpy
from spmark.studies.dash.checkpoints import Checkpoint, Epoch
from spmark.studies.dash.samples import MatrixSamples, SampleSet
from spmark.studies.orders import Pairs, kendall

BATCH: Final = 32
"""Configs of a batch on a target platform."""
_SAVED_EVERY_S = 10
"""Writing a state may take as long as an epoch, so that not every epoch's is written."""
_MADE_WITH = ("torch", "safetensors", "numpy")

Embeddings = dict[tuple[str, str, bytes], tuple[Tensor, float]]
"""Embeddings with their seconds, by the featuriser's weights and the matrix (`embedder`)."""
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
    weights = tensorfile.digest_of(tensorfile.part_of(network.tensors(), "featuriser"))
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


def ranking_loss(scores: Tensor, slower: Tensor, faster: Tensor, margin: float) -> Tensor:
    """Give the mean over pairs of ``max(0, margin - (score of the slower - score of the faster))``; 0 without pairs.

    DASH (COGNATE), appendix A.4, sums over pairs; by the mean, matrices with other numbers of pairs weigh the same.

    Parameters
    ----------
    scores : (n,) tensor
    slower, faster : (p,) int64 tensors
        As `spmark.studies.orders.Pairs` has them.
    margin : float
    """
    if not len(slower):
        return scores.sum() * 0
    return (margin - (scores[slower] - scores[faster])).relu().mean()


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


class _Batch:
    """Configs of one matrix on the device."""

    def __init__(
        self,
        pattern: Pattern | Tensor,
        common: Tensor,
        latent: Tensor,
        seconds: NDArray[np.float64],
        noise: float,
    ) -> None:
        self._pattern, self._common, self._latent = pattern, common, latent
        self.seconds, self.noise = seconds, noise
        self.pairs = Pairs.of(seconds, noise)
        on_device = (load_torch().from_numpy(one).to(common.device) for one in (self.pairs.slower, self.pairs.faster))
        self._slower, self._faster = on_device

    def look(self, network: Network, margin: float) -> tuple[Tensor, Tensor]:
        """Give the configs' scores, and their ranking loss; a pattern is embedded, an embedding taken as it is."""
        of = self._pattern
        embedding = network.embed(of) if isinstance(of, Pattern) else of
        scores = network.rank(embedding, network.embed_configs(self._common, self._latent))
        return scores, ranking_loss(scores, self._slower, self._faster, margin)

    def parts(self, size: int, order: NDArray[np.int64]) -> Iterator[_Batch]:
        """Divide the configs, in an order, into batches of at most ``size``."""
        for chosen in np.split(order, range(size, len(order), size)):
            at = load_torch().from_numpy(chosen).to(self._common.device)
            yield _Batch(self._pattern, self._common[at], self._latent[at], self.seconds[chosen], self.noise)

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
    shared = {} if session.embeddings is None else session.embeddings
    made = shared if frozen else None
    batches, prepared = _batches(network, encoder, samples, settings.noise, made)
    if not any(batch.pairs.slower.size for batch in batches):
        raise DatasetError(
            f"expected a matrix with two configs whose times differ by more than {settings.noise:.1%}, "
            f"found none among {len(batches)} matrices"
        )
    held = _batches(network, encoder, session.held_out, settings.noise, made)[0] if session.held_out else []
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
        told = ", ".join(f"{name} {value:.3f}" for name, value in curve[-1].known().items())
        session.tell(f"epoch {number + 1} of {settings.epochs}: {told}")
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
    network: Network, encoder: Encoder, samples: SampleSet, noise: float, made: Embeddings | None
) -> tuple[list[_Batch], float]:
    """Put all matrices on the device; gives the seconds of that, as if no embedding had been there before."""
    torch, device = load_torch(), network.device
    _check(network, encoder, samples)
    embedded = list(map(embedder(network, made), samples.matrices)) if made is not None else []
    started = time.perf_counter()
    patterns: list[Pattern | Tensor] = [vector for vector, _ in embedded]
    if made is None:
        patterns = [Pattern.of(one.sites, one.sizes, device) for one in samples.matrices]
    batches = []
    for one, pattern in zip(samples.matrices, patterns, strict=True):
        common, latent = (torch.from_numpy(array).to(device) for array in (one.common, encoder.encode(one.own)))
        batches.append(_Batch(pattern, common, latent, one.seconds, noise))
    return batches, time.perf_counter() - started + sum(seconds for _, seconds in embedded)


def _check(network: Network, encoder: Encoder, samples: SampleSet) -> None:
    """Check that a model takes sites within the limits, and vectors of the lengths, that samples have."""
    limits, wanted = (network.spec.max_sites, network.spec.max_side), (COMMON_SIZE, encoder.maps[0][0].shape[0])
    if limits != (MAX_SITES, MAX_SIDE):
        raise DatasetError(f"expected sites within the limits {limits}, found {(MAX_SITES, MAX_SIDE)}")
    for one in samples.matrices:
        if (found := (one.common.shape[1], one.own.shape[1])) != wanted:
            raise DatasetError(f"{one.matrix}: expected vectors of {wanted[0]} and {wanted[1]} numbers, found {found}")


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
        parts = [part for one in batches for part in one.parts(settings.batch, draw.permutation(len(one.seconds)))]
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
