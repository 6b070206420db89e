"""What a search chooses from: named axes with their values, and which configs are legal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from spmark.impls.core.interfaces import Config


def always_legal(config: Mapping[str, Any]) -> bool:
    """Take every config."""
    return True


@dataclass(frozen=True)
class Axis:
    """One decision of a search."""

    name: str
    values: tuple[Config, ...]
    """What can be decided, in the order in which a search tries it. Each value sets one tunable, or several that make
    sense together only."""

    @classmethod
    def of(cls, name: str, values: Iterable[Any]) -> Axis:
        """Make the axis of a single tunable."""
        return cls(name, tuple({name: value} for value in values))

    def of_config(self, config: Mapping[str, Any]) -> Config:
        """Give the value that a config has on the axis; the first one where the config has none of them."""
        return next((value for value in self.values if value.items() <= config.items()), self.values[0])


@dataclass(frozen=True)
class Space:
    """The configs that a search chooses from.

    Parameters
    ----------
    axes : tuple of Axis
        A config has one value of each.
    legal : callable
        Tells whether a config can be built.
    """

    axes: tuple[Axis, ...]
    legal: Callable[[Config], bool] = always_legal

    def configs(self) -> Iterator[Config]:
        """Give every legal config; the value of the last axis changes fastest.

        Takes time in proportion to the product of the axes' lengths.
        """
        for values in product(*(axis.values for axis in self.axes)):
            config = {name: value for part in values for name, value in part.items()}
            if self.legal(config):
                yield config

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with the legal configs, and with nothing else."""
        lines = sorted(key_of(config) for config in self.configs())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def key_of(config: Mapping[str, Any]) -> str:
    """Give the name under which a config is known: the order of its tunables does not matter."""
    return json.dumps(config, sort_keys=True, default=str)
