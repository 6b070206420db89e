"""The models that a study compares, by name: DASH's own, parts left out or replaced, and WACO's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spmark.impls.dash.encoders import Encoder, EncoderKind, augmented, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.predictor import PredictorKind
from spmark.impls.dash.study.checkpoints import Epoch
from spmark.impls.dash.study.gathering import Gathered
from spmark.impls.dash.study.training import Session, TrainingSettings, fine_tune, pretrain, retargeted
from spmark.impls.dash.waco import Transfer, waco_encoder, waco_spec
from spmark.impls.dash.weights import TrainedModel


@dataclass(frozen=True)
class Recipe:
    """How a model is made."""

    spec: NetworkSpec = NetworkSpec()
    """The network; not looked at where ``waco`` says how WACO's network transfers."""
    waco: Transfer | None = None
    pretrained: bool = True
    """Whether the source platform is seen."""
    fine_tuned: bool = True
    """Whether the target platform is seen."""
    featuriser_of: str = ""
    """The model whose featuriser a study takes over, so that it is trained once for all variants."""


def _variant(part: str, value: object) -> Recipe:
    return Recipe(NetworkSpec.model_validate({part: value}), featuriser_of="dash")


MODELS: Final[Mapping[str, Recipe]] = {
    "dash": Recipe(),
    "zero_shot": Recipe(fine_tuned=False),
    "scratch": Recipe(pretrained=False),
    "waco_fm": Recipe(waco=Transfer.MAPPED),
    "waco_fa": Recipe(waco=Transfer.AUGMENTED),
    "waco_zero_shot": Recipe(waco=Transfer.PLAIN, fine_tuned=False, featuriser_of="waco_fm"),
    "waco_fine_tuned": Recipe(waco=Transfer.PLAIN, featuriser_of="waco_fm"),
    "dash_mlp192": _variant("predictor", PredictorKind.MLP192),
    "no_featuriser": Recipe(NetworkSpec(featuriser=Featuriser.NONE)),
    "no_mapper": _variant("mapped", False),
    "no_encoder": _variant("encoder", EncoderKind.NONE),
    "encoder_pca": _variant("encoder", EncoderKind.PCA),
    "encoder_vae": _variant("encoder", EncoderKind.VAE),
    "encoder_fa": _variant("encoder", EncoderKind.AUGMENTED),
    "predictor_lstm": _variant("predictor", PredictorKind.LSTM),
    "predictor_gru": _variant("predictor", PredictorKind.GRU),
    "predictor_transformer": _variant("predictor", PredictorKind.TRANSFORMER),
}
HEADLINE: Final = ("dash", "zero_shot", "scratch", "waco_fm", "waco_fa")
"""Models that a study trains with every seed, each with a featuriser of its own; the others are ablations."""


class Maker:
    """Makes one model for the platforms of a study.

    Parameters
    ----------
    recipe : Recipe
    platforms : sequence of Gathered
        Samples of every platform that the model will meet: where slots are a platform's own, in this order.
    """

    def __init__(self, recipe: Recipe, platforms: Sequence[Gathered]) -> None:
        self.recipe, self.spec = recipe, recipe.spec
        own = {one.samples.subject.platform: one.own.size for one in platforms}
        self._slots = own
        if recipe.waco:
            self.spec, self._slots = waco_spec(recipe.waco, own)
        elif self.spec.encoder is EncoderKind.AUGMENTED:
            self.spec = self.spec.model_copy(update={"latent": sum(own.values())})

    def seen(self, of: Gathered) -> Gathered:
        """Give samples as the network takes them."""
        return replace(of, samples=of.samples.for_waco(self.recipe.waco)) if self.recipe.waco else of

    def encoder(self, of: Gathered, seed: int) -> Encoder:
        """Fit the latent encoder of a platform; a seed decides it."""
        platform = of.samples.subject.platform
        if self.recipe.waco:
            return waco_encoder(self.recipe.waco, platform, self._slots)
        if self.spec.encoder is EncoderKind.AUGMENTED:
            return augmented(platform, self._slots)
        return fit(self.spec.encoder, of.own.every(), seed)

    def pretrained(
        self, source: Gathered, settings: TrainingSettings, session: Session
    ) -> tuple[TrainedModel, Sequence[Epoch]]:
        """Train a new network on one platform (`spmark.impls.dash.study.training.pretrain`)."""
        return pretrain(self.spec, self.encoder(source, settings.seed), self.seen(source).samples, settings, session)

    def fine_tuned(
        self, model: TrainedModel, target: Gathered, settings: TrainingSettings, session: Session
    ) -> tuple[TrainedModel, Sequence[Epoch]]:
        """Go on from a pre-trained model on the target platform (`spmark.impls.dash.study.training.fine_tune`)."""
        return fine_tune(model, self.encoder(target, settings.seed), self.seen(target).samples, settings, session)

    def retargeted(self, model: TrainedModel, target: Gathered, seed: int) -> TrainedModel:
        """Give a pre-trained model as it scores the target platform (`spmark.impls.dash.study.training.retargeted`)."""
        return retargeted(model, self.encoder(target, seed), self.seen(target).samples)
