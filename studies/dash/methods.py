"""What a study compares, by name: DASH's model, parts left out or replaced, WACO's network, and baselines.

Also which of these are trained, with which seeds, from how many matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from spmark.impls.dash.encoders import Encoder, EncoderKind, augmented, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.predictor import PredictorKind
from spmark.impls.dash.waco import Transfer, waco_encoder, waco_spec
from spmark.impls.dash.weights import TrainedModel
from spmark.studies.dash.samples import Gathered, SampleSet
from spmark.studies.dash.training import BATCH, Epoch, Session, TrainingSettings, train

Trained = tuple[TrainedModel, Sequence[Epoch]]
"""A model, and the curve of its training."""
PRETRAINING: Final = "pre-training"
FINE_TUNING: Final = "fine-tuning"
_DASH: Final = NetworkSpec()


@dataclass(frozen=True)
class Variant:
    """How a model is made."""

    spec: NetworkSpec = _DASH
    """The network; not looked at where ``waco`` says how WACO's network transfers."""
    waco: Transfer | None = None
    pretrained: bool = True
    """Whether the source platform is seen."""
    fine_tuned: bool = True
    """Whether the target platform is seen."""
    frozen: bool = True
    """Whether fine-tuning leaves the featuriser as it is."""
    featuriser_of: str = ""
    """The model whose featuriser a study takes over, so that it is trained once for all variants."""


def _dash_with(part: str, value: object) -> Variant:
    return Variant(NetworkSpec.model_validate({part: value}), featuriser_of="dash")


MODELS: Final[Mapping[str, Variant]] = {
    "dash": Variant(),
    "zero_shot": Variant(fine_tuned=False),
    "scratch": Variant(pretrained=False),
    "unfrozen": Variant(frozen=False),
    "waco_fm": Variant(waco=Transfer.MAPPED),
    "waco_fa": Variant(waco=Transfer.AUGMENTED),
    "waco_zero_shot": Variant(waco=Transfer.PLAIN, fine_tuned=False, featuriser_of="waco_fm"),
    "waco_fine_tuned": Variant(waco=Transfer.PLAIN, featuriser_of="waco_fm"),
    "dash_mlp192": _dash_with("predictor", PredictorKind.MLP192),
    "no_featuriser": Variant(NetworkSpec(featuriser=Featuriser.NONE)),
    "no_mapper": _dash_with("mapped", False),
    "no_encoder": _dash_with("encoder", EncoderKind.NONE),
    "encoder_pca": _dash_with("encoder", EncoderKind.PCA),
    "encoder_vae": _dash_with("encoder", EncoderKind.VAE),
    "encoder_fa": _dash_with("encoder", EncoderKind.AUGMENTED),
    "predictor_lstm": _dash_with("predictor", PredictorKind.LSTM),
    "predictor_gru": _dash_with("predictor", PredictorKind.GRU),
    "predictor_transformer": _dash_with("predictor", PredictorKind.TRANSFORMER),
}
HEADLINE: Final = ("dash", "zero_shot", "scratch", "unfrozen", "waco_fm", "waco_fa")
"""Models that a study trains with every seed, each with a featuriser of its own; the others are ablations."""
RULED: Final = "rule_ck"
BASELINES: Final[Mapping[str, tuple[bool, bool]]] = {
    "random5": (False, False),
    "target_best": (False, True),
    RULED: (False, False),
    "lightgbm": (False, True),
    "lightgbm_source": (True, True),
}
"""What stands beside the models, and whether it sees the source platform and the target platform."""
METHODS: Final = (*MODELS, *BASELINES)
SOURCE_SIZES: Final = (5, 20, 100, 500, 1000)
"""Matrices of pre-training in figure 11; those that the samples have are studied."""
TARGET_SIZES: Final = (1, 3, 5, 7, 10, 20, 50, 100, 1000)
"""Matrices of fine-tuning in figure 12, and of a training without transfer in figure 10; likewise."""
ABLATION_SEEDS: Final = 2


class Maker:
    """Makes one model for the platforms of a study.

    Parameters
    ----------
    variant : Variant
    platforms : sequence of Gathered
        Samples of every platform that the model will meet: where slots are a platform's own, in this order.
    epochs, seed : int
    """

    def __init__(self, variant: Variant, platforms: Sequence[Gathered], epochs: int, seed: int) -> None:
        self.variant, self.spec, self._epochs, self._seed = variant, variant.spec, epochs, seed
        self._target = platforms[-1].platform if len(platforms) > 1 else ""
        self._slots = {one.platform: one.own.size for one in platforms}
        if variant.waco:
            self.spec, self._slots = waco_spec(variant.waco, self._slots)
        elif self.spec.encoder is EncoderKind.AUGMENTED:
            self.spec = self.spec.model_copy(update={"latent": sum(self._slots.values())})

    def seen(self, of: Gathered) -> SampleSet:
        """Give samples as the network takes them."""
        return of.samples.for_waco(self.variant.waco) if self.variant.waco else of.samples

    def trained(self, platform: Gathered, session: Session, before: TrainedModel | None = None) -> Trained:
        """Train a new network on one platform, or go on from another platform's model."""
        batch = BATCH if platform.platform == self._target else None
        settings = TrainingSettings(
            epochs=self._epochs, seed=self._seed, noise=platform.noise, batch=batch, frozen=self.variant.frozen
        )
        return train(before or self.spec, self._encoder(platform), self.seen(platform), settings, session)

    def moved(self, model: TrainedModel, platform: Gathered) -> TrainedModel:
        """Let a model score the configs of a platform that it has not seen."""
        card = model.card.model_copy(update={"subject": platform.samples.subject})
        return TrainedModel(card, model.network, self._encoder(platform))

    def _encoder(self, of: Gathered) -> Encoder:
        """Fit the latent encoder of a platform to every combination of its own parameters."""
        if self.variant.waco:
            return waco_encoder(self.variant.waco, of.platform, self._slots)
        if self.spec.encoder is EncoderKind.AUGMENTED:
            return augmented(of.platform, self._slots)
        return fit(self.spec.encoder, of.own.every(), self._seed)


class StudyTask(NamedTuple):
    """One training, and its judging."""

    method: str
    seed: int
    source_matrices: int
    """0 where the method does not see the source platform."""
    target_matrices: int
    """Likewise."""


def tasks(
    methods: Collection[str], seeds: int, main: tuple[int, int], available: tuple[int, int]
) -> Iterator[StudyTask]:
    """Walk over all tasks, one seed after the other; other sizes come last.

    Parameters
    ----------
    methods : collection of str
    seeds : int
        Of `HEADLINE`'s models; at most `ABLATION_SEEDS` of these for the others, and one for what no seed changes.
    main, available : tuple of int
        Matrices of the source and of the target platform that every method learns from, and that have samples.
    """
    few = min(ABLATION_SEEDS, seeds)
    # Of the baselines, a seed changes the random one alone.
    seeds_of = dict.fromkeys(BASELINES, 1) | dict.fromkeys(MODELS, few) | dict.fromkeys((*HEADLINE, "random5"), seeds)
    for seed in range(seeds):
        for method in methods:
            if seed < seeds_of[method]:
                variant = MODELS.get(method)
                sees = (variant.pretrained, variant.fine_tuned) if variant else BASELINES[method]
                yield StudyTask(method, seed, *(count * seen for count, seen in zip(main, sees, strict=True)))
    sources, targets = (
        [size for size in sizes if size != own and size <= most]
        for sizes, own, most in zip((SOURCE_SIZES, TARGET_SIZES), main, available, strict=True)
    )
    for seed in range(few):
        others = [
            StudyTask(method, seed, of, size)
            for method, of in (("dash", main[0]), ("unfrozen", main[0]), ("scratch", 0), ("lightgbm", 0))
            for size in targets
            if seed < seeds_of[method]
        ]
        others += [StudyTask("dash", seed, size, main[1]) for size in sources]
        yield from (task for task in others if task.method in methods)
