"""The predictors: from a matrix's embedding x, the mapped vector y and the latent vector z to a score.

DASH (COGNATE), section 3.2, figure 8 and table 5. The table's first layer takes 128 + 64 = 192 numbers, while x, y and
z together have 256. Both readings are here: `MLP256` concatenates all three, `MLP192` adds y and z.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from spmark.impls.dash.featuriser import EMBEDDING
from spmark.impls.dash.mapping import COMMON_SIZE
from spmark.impls.dash.withtorch import Layers, load_torch

LATENT: Final = 64
"""Numbers of y, and of z where an encoder makes it."""
_PROGRAM: Final = 128
"""Numbers of WACO's embedding of a config."""


class PredictorKind(StrEnum):
    """Which network predicts."""

    MLP256 = "mlp256"
    MLP192 = "mlp192"
    LSTM = "lstm"
    GRU = "gru"
    TRANSFORMER = "transformer"
    WACO = "waco"
    """WACO's: one network embeds y's and z's numbers together, then an MLP takes 128 + 128 numbers."""


SEQUENCES: Final = (PredictorKind.LSTM, PredictorKind.GRU, PredictorKind.TRANSFORMER)
"""Predictors that read a sequence of four vectors of 64 numbers: the halves of x, then y, then z."""


def build(kind: PredictorKind, latent: int) -> Layers:
    """Make the layers of the mapper's MLP and of a predictor (`torch.nn.ModuleDict`).

    Parameters
    ----------
    kind : PredictorKind
    latent : int
        Numbers of z.

    Raises
    ------
    ValueError
        The predictor needs a z of 64 numbers and is to have another.
    """
    nn = load_torch().nn
    if latent != LATENT and kind not in (PredictorKind.MLP256, PredictorKind.WACO):
        raise ValueError(f"expected z of {LATENT} numbers for the predictor {kind}, found {latent}")
    if kind is PredictorKind.WACO:
        embedder = nn.Sequential(nn.Linear(COMMON_SIZE + latent, _PROGRAM), nn.ReLU(), nn.Linear(_PROGRAM, _PROGRAM))
        return nn.ModuleDict({"embedder": embedder, "head": _head(EMBEDDING + _PROGRAM)})
    layers = {"mapper": nn.Sequential(nn.Linear(COMMON_SIZE, LATENT), nn.ReLU())}
    if kind in SEQUENCES:
        if kind is PredictorKind.TRANSFORMER:
            shape = {"dim_feedforward": 2 * LATENT, "dropout": 0.0}
            layers["reader"] = nn.TransformerEncoderLayer(LATENT, nhead=4, batch_first=True, **shape)
        else:
            layers["reader"] = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](LATENT, LATENT, batch_first=True)
        layers["places"] = nn.Embedding(4, LATENT)
        layers["head"] = nn.Linear(LATENT, 1)
    else:
        layers["head"] = _head(EMBEDDING + LATENT + (latent if kind is PredictorKind.MLP256 else 0))
    return nn.ModuleDict(layers)


def _head(size: int) -> Layers:
    nn = load_torch().nn
    return nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
