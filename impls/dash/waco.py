"""WACO beside DASH: its network with the ways of transfer.

Won, Mendis, Emer and Amarasinghe, "WACO", ASPLOS 2023. WACO's network is `Featuriser.WACO` and `PredictorKind.WACO`.
DASH's paper (section 4.2) transfers it by feature augmentation and by feature mapping, and as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.encoders import Encoder, EncoderKind, augmented, padded
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.mapping import COMMON_SIZE
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.predictor import PredictorKind


class Transfer(StrEnum):
    """How WACO's network meets the configs of several platforms."""

    AUGMENTED = "augmented"
    """Every platform has slots of its own for all its numbers, mapped ones included."""
    MAPPED = "mapped"
    """The common vector is shared; a platform has slots of its own for its own parameters."""
    PLAIN = "plain"
    """Nothing is done: the numbers of all platforms stand in the same places, whatever they mean."""


def waco_spec(transfer: Transfer, own: Mapping[str, int]) -> tuple[NetworkSpec, dict[str, int]]:
    """Give the network of a way of transfer, and how many slots each platform has, for `waco_encoder`.

    Parameters
    ----------
    transfer : Transfer
    own : mapping of str to int
        Numbers of own parameters by platform.
    """
    mapped = transfer is Transfer.MAPPED
    slots = {platform: size + (0 if mapped else COMMON_SIZE) for platform, size in own.items()}
    spec = NetworkSpec(
        featuriser=Featuriser.WACO,
        mapped=mapped,
        encoder=EncoderKind.AUGMENTED,
        latent=max(slots.values()) if transfer is Transfer.PLAIN else sum(slots.values()),
        predictor=PredictorKind.WACO,
    )
    return spec, slots


def waco_encoder(transfer: Transfer, platform: str, slots: Mapping[str, int]) -> Encoder:
    """Give the encoder of a platform, with the slots that `waco_spec` gave for all platforms."""
    if transfer is Transfer.PLAIN:
        return padded(slots[platform], max(slots.values()))
    return augmented(platform, slots)


def slot_numbers(transfer: Transfer, common: NDArray[np.float32], own: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give the numbers that enter a platform's slots, (n, numbers) float32.

    Parameters
    ----------
    transfer : Transfer
    common : (n, 53) float32
    own : (n, size) float32
    """
    return own if transfer is Transfer.MAPPED else np.concatenate([common, own], axis=1)
