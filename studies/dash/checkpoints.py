"""The state of a training between two epochs, as a file: on a CPU, a training that goes on gives the same bits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spmark.impls.core.errors import BuildError
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.guard import reading
from spmark.impls.core.plainjson import parse_model
from spmark.impls.dash import tensorfile
from spmark.impls.dash.network import Network
from spmark.impls.dash.withtorch import load_torch, to_numpy

_STATE: Final = "state"


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


class _State(Frozen):
    key: str
    """Digest of all that decides the bits of a training."""
    curve: tuple[Epoch, ...]


@dataclass
class Checkpoint:
    """A place for the state of one training."""

    path: Path
    key: str
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
        tensors = {f"network.{name}": array for name, array in network.tensors().items()}
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": to_numpy(tensor) for name, tensor in state.items()}
        text = _State(key=self.key, curve=tuple(curve)).model_dump_json()
        tensorfile.write(self.path, tensors, {_STATE: text})
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
        tensors, texts = tensorfile.read(self.path)
        with reading(self.path, "the state of a training", BuildError):
            state = parse_model(_State, texts[_STATE].encode())
        if state.key != self.key:
            raise BuildError(
                f"{self.path}: expected the checkpoint of this training, {self.key[:16]}, found that of another, "
                f"{state.key[:16]}; name another file, or remove this one"
            )
        network.take(tensorfile.part_of(tensors, "network"))
        kept: dict[int, dict[str, Any]] = {}
        for name, array in tensorfile.part_of(tensors, "optimizer").items():
            number, _, part = name.partition(".")
            kept.setdefault(int(number), {})[part] = load_torch().from_numpy(array.copy())
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": kept, "param_groups": groups})
        return list(state.curve)
