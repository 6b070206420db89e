"""The models that a study compares, by name: DASH's own, parts left out or replaced, and WACO's network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spmark.impls.dash.encoders import Encoder, EncoderKind, augmented, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.predictor import PredictorKind
from spmark.impls.dash.waco import Transfer, waco_encoder, waco_spec
from spmark.impls.dash.weights import TrainedModel
from spmark.studies.dash.checkpoints import Epoch
from spmark.studies.dash.gathering import Gathered
from spmark.studies.dash.training import Session, TrainingSettings, fine_tune, pretrain, retargeted

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
    featuriser_of: str = ""
    """The model whose featuriser a study takes over, so that it is trained once for all variants."""


def _dash_with(part: str, value: object) -> Variant:
    return Variant(NetworkSpec.model_validate({part: value}), featuriser_of="dash")


MODELS: Final[Mapping[str, Variant]] = {
    "dash": Variant(),
    "zero_shot": Variant(fine_tuned=False),
    "scratch": Variant(pretrained=False),
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
HEADLINE: Final = ("dash", "zero_shot", "scratch", "waco_fm", "waco_fa")
"""Models that a study trains with every seed, each with a featuriser of its own; the others are ablations."""


def fitted(kind: EncoderKind, of: Gathered, seed: int) -> Encoder:
    """Fit an encoder to every combination of a platform's own parameters."""
    return fit(kind, of.own.every(), seed)


class Maker:
    """Makes one model for the platforms of a study.

    Parameters
    ----------
    variant : Variant
    platforms : sequence of Gathered
        Samples of every platform that the model will meet: where slots are a platform's own, in this order.
    fit_encoder : callable
        Fits the encoder of a kind to a platform; a seed decides it.
    """

    def __init__(
        self,
        variant: Variant,
        platforms: Sequence[Gathered],
        fit_encoder: Callable[[EncoderKind, Gathered, int], Encoder] = fitted,
    ) -> None:
        self.variant, self.spec, self._fit = variant, variant.spec, fit_encoder
        own = {one.samples.subject.platform: one.own.size for one in platforms}
        self._slots = own
        if variant.waco:
            self.spec, self._slots = waco_spec(variant.waco, own)
        elif self.spec.encoder is EncoderKind.AUGMENTED:
            self.spec = self.spec.model_copy(update={"latent": sum(own.values())})

    def seen(self, of: Gathered) -> Gathered:
        """Give samples as the network takes them."""
        return replace(of, samples=of.samples.for_waco(self.variant.waco)) if self.variant.waco else of

    def encoder(self, of: Gathered, seed: int) -> Encoder:
        """Fit the latent encoder of a platform; a seed decides it."""
        platform = of.samples.subject.platform
        if self.variant.waco:
            return waco_encoder(self.variant.waco, platform, self._slots)
        if self.spec.encoder is EncoderKind.AUGMENTED:
            return augmented(platform, self._slots)
        return self._fit(self.spec.encoder, of, seed)

    def pretrained(
        self, source: Gathered, settings: TrainingSettings, session: Session
    ) -> tuple[TrainedModel, Sequence[Epoch]]:
        """Train a new network on one platform (`spmark.studies.dash.training.pretrain`)."""
        return pretrain(self.spec, self.encoder(source, settings.seed), self.seen(source).samples, settings, session)

    def fine_tuned(
        self, model: TrainedModel, target: Gathered, settings: TrainingSettings, session: Session
    ) -> tuple[TrainedModel, Sequence[Epoch]]:
        """Go on from a pre-trained model on the target platform (`spmark.studies.dash.training.fine_tune`)."""
        return fine_tune(model, self.encoder(target, settings.seed), self.seen(target).samples, settings, session)

    def retargeted(self, model: TrainedModel, target: Gathered, seed: int) -> TrainedModel:
        """Give a pre-trained model as it scores the target platform (`spmark.studies.dash.training.retargeted`)."""
        return retargeted(model, self.encoder(target, seed), self.seen(target).samples)
