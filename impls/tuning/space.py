"""The space that a search chooses from: named axes with their values, and a rule for legal configs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import Config


@dataclass(frozen=True)
class Axis:
    """One decision of a search."""

    name: str
    values: tuple[Config, ...]
    """The values of the decision, in the order in which a search tries them. Each value sets one tunable, or several
    that only make sense together."""

    @classmethod
    def of(cls, name: str, values: Iterable[Any]) -> Axis:
        """Make the axis of a single tunable; a value that is a mapping sets several tunables."""
        return cls(name, tuple(dict(value) if isinstance(value, Mapping) else {name: value} for value in values))


@dataclass(frozen=True)
class Space:
    """The configs that a search chooses from.

    Parameters
    ----------
    axes : tuple of Axis
        A config has one value of each axis.
    legal : callable
        Tells whether a config can be built.
    """

    axes: tuple[Axis, ...]
    legal: Callable[[Config], bool] = lambda _: True

    @classmethod
    def of(cls, axes: Mapping[str, Iterable[Any]], legal: Callable[[Config], bool] = lambda _: True) -> Space:
        """Make a space of the values of its axes by name (`Axis.of`)."""
        return cls(tuple(Axis.of(name, values) for name, values in axes.items()), legal)

    def configs(self) -> Iterator[Config]:
        """Give every legal config; the value of the last axis changes fastest.

        Takes time in proportion to the product of the axes' lengths.
        """
        for values in product(*(axis.values for axis in self.axes)):
            config = {name: value for part in values for name, value in part.items()}
            if self.legal(config):
                yield config

    def sample(self, seed: int, most: int) -> list[Config]:
        """Draw ``most`` legal configs without replacement, each legal config with the same chance.

        Where there are no more than ``most``, the draw gives every legal config, in the order of drawing. Takes memory
        in proportion to the product of the axes' lengths, and asks ``legal`` until enough configs are found.
        """
        shape = [len(axis.values) for axis in self.axes]
        drawn: list[Config] = []
        for at in np.random.default_rng(seed).permutation(math.prod(shape)):
            if len(drawn) == most:
                break
            chosen = zip(self.axes, np.unravel_index(at, shape), strict=True)
            config = {name: value for axis, number in chosen for name, value in axis.values[number].items()}
            if self.legal(config):
                drawn.append(config)
        return drawn

    def __contains__(self, config: Mapping[str, Any]) -> bool:
        """Tell whether a config has a value of every axis, nothing else, and is legal; 1, 1.0 and true differ."""
        near = (Axis(axis.name, tuple(v for v in axis.values if v.items() <= config.items())) for axis in self.axes)
        return key_of(dict(config)) in map(key_of, Space(tuple(near), self.legal).configs())

    @property
    def digest(self) -> str:
        """Sixteen hex digits that depend on the legal configs alone."""
        lines = sorted(key_of(config) for config in self.configs())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def key_of(config: Mapping[str, Any]) -> str:
    """Give a text that identifies a config, whatever the order of its tunables."""
    return json.dumps(config, sort_keys=True, default=str)
