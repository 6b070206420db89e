"""The state of a training between two epochs, as a file: on a CPU, a training that goes on gives the same bits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import whole
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.guard import reading
from spmark.impls.dash.network import Network
from spmark.impls.dash.withtorch import load_torch


class Epoch(Frozen):
    """One point of the curves: means over the matrices that have a value, None where no matrix has one."""

    prl: float | None
    """Ranking loss on the samples of training, each matrix before its first step of the epoch."""
    opa: float | None
    """Ordered pair accuracy, likewise."""
    tau: float | None
    """Kendall's tau, likewise."""
    held_prl: float | None
    """Ranking loss on held-out samples, at the end of the epoch."""
    held_opa: float | None
    held_tau: float | None
    seconds: float
    """Of the steps, without those of the held-out values; an epoch that begins or goes on counts its preparation."""

    def known(self) -> dict[str, float]:
        """Give the values that there are, by name; seconds are none of them."""
        return {name: value for name, value in self if value is not None and name != "seconds"}


@dataclass
class Checkpoint:
    """A place for the state of one training."""

    path: Path
    key: str
    """Digest of all that decides the bits of the training."""
    _saved: float = field(default_factory=time.monotonic)

    @property
    def age_s(self) -> float:
        """Seconds since the state was saved last, or since training began."""
        return time.monotonic() - self._saved

    def save(self, network: Network, optimizer: Any, curve: list[Epoch]) -> None:
        """Write weights, the optimizer's state and the curve.

        Raises
        ------
        BuildError
            The file cannot be written.
        """
        parts = {"network": network.layers.state_dict(), "optimizer": optimizer.state_dict()}
        state = {"key": self.key, "curve": [epoch.model_dump() for epoch in curve], **parts}
        try:
            with whole(self.path) as part:
                load_torch().save(state, part)
        except OSError as error:
            raise BuildError(f"{self.path}: the file cannot be written: {error.strerror}") from error
        self._saved = time.monotonic()

    def resume(self, network: Network, optimizer: Any) -> list[Epoch]:
        """Take the state over; gives the curve so far, which is empty where there is no file.

        Raises
        ------
        BuildError
            The file is damaged, or is of another training.
        """
        if not self.path.is_file():
            return []
        with reading(self.path, "the state of a training", BuildError):
            state = load_torch().load(self.path, network.device, weights_only=True)
            if state["key"] != self.key:
                raise BuildError(
                    f"{self.path}: expected the checkpoint of this training, {self.key[:16]}, found that of another, "
                    f"{state['key'][:16]}; name another file, or remove this one"
                )
            network.layers.load_state_dict(state["network"])
            optimizer.load_state_dict(state["optimizer"])
            return [Epoch.model_validate(epoch) for epoch in state["curve"]]
