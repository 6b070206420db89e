"""What configs run on, for cost models that learn from one platform and move to another: one surface for all platforms.

A platform is a space of configs for each problem, and a way to take samples of their times. Its configs have two parts:
loops that all platforms share (`CommonLoops`), and parameters of its own, as numbers or words on fixed axes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.interfaces import Built, Candidate, Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import Axis, Space, key_of


@dataclass(frozen=True)
class CommonLoops:
    """What a config shares with those of other platforms, in the letters of DASH's SpMM.

    Loops over i run over rows of A, loops over j over columns of A, loops over k over the dense width.
    """

    splits: tuple[int, int, int]
    """I, J and K: iterations of the inner loops of i, j and k; a platform may say otherwise."""
    order: tuple[str, ...]
    """The platform's loops, the outermost first: ``i1, i2, j1, j2, k1, k2``, or ``i1, i2, j, k1, k2, k3``."""
    innermost: int = 1
    """Iterations of k3, for platforms that have the loop."""


class Platform(Protocol):
    """Configs of one kind of machine, and their times.

    A platform with a rule that a paper gives for its configs, which needs no search, also has ``ruled``, the operators
    of the rule, and ``by_rule(problem, configs)``, a score for each config; lower is nearer the rule.
    """

    name: ClassVar[str]
    kind: ClassVar[DeviceKind | None]
    """What samples are taken on; None where they are simulated."""
    note: ClassVar[str]
    """Stands wherever a figure of the platform is shown."""
    cost_models: ClassVar[Mapping[str, str]]
    """As an implementation has them (`spmark.impls.table.cost_models`)."""

    def space(self, problem: Problem) -> Space:
        """Give the configs of a problem."""

    def default(self, problem: Problem) -> Config:
        """Give the config that a speed-up is over."""

    def digest(self, op: Op) -> str:
        """Give sixteen hex digits that tell versions of the spaces of an operator's problems apart."""

    def common(self, config: Config) -> CommonLoops:
        """Give what a config shares with those of other platforms."""

    def own_axes(self, op: Op) -> tuple[Axis, ...]:
        """Give the platform's own parameters with all their values, the same for all problems."""

    def own(self, config: Config) -> Config:
        """Give the own parameters of a config, each a value of its axis, and perhaps more: by default all of it."""
        return config

    def measure(self, problem: Problem, configs: Sequence[Config], device: DeviceSpec | None) -> list[Candidate]:
        """Take samples of configs, in their order; a simulated time stands once.

        Parameters
        ----------
        problem : Problem
        configs : sequence of dict
            Of ``space(problem)``.
        device : DeviceSpec
            Of the platform's ``kind``; None where times are simulated.

        Raises
        ------
        SpmarkError
            The problem cannot be measured at all. A config that cannot be built has a reason in place of samples.
        """


class PlanningPlatform(Platform, Protocol):
    """A platform whose configs are plans of an implementation."""

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Say why no config of the problem can be built on the device, or None."""

    def measure(self, problem: Problem, configs: Sequence[Config], device: DeviceSpec | None) -> list[Candidate]:
        """Race the configs; one that cannot be built has a reason.

        Raises
        ------
        DeviceError
            The device is of another kind, or lacks what the platform needs.
        """
        if device is None or device.kind is not self.kind:
            found = device.name if device else "no device"
            raise DeviceError(f"expected a {self.kind} device to measure on, found {found}")
        if reason := self.unsupported(problem, device):
            raise DeviceError(f"expected configs of {self.name} that can be measured, found none: {reason}")
        return raced(self.open_race(problem, device, finalists=0), configs)

    def open_race(self, problem: Problem, device: DeviceSpec, **options: Any) -> Race[Any]:
        """Open a race of configs on a device of the platform's ``kind``; ``options`` are those of `Race`."""

    def plan(self, problem: Problem, device: DeviceSpec, config: Config) -> Built:
        """Build a config's plan on a device of the platform's ``kind``, or on the host ring.

        Raises
        ------
        BuildError
            The config cannot be built.
        """


def raced(race: Race[Any], configs: Sequence[Config]) -> list[Candidate]:
    """Give the samples that a race takes of configs, or its reasons."""
    race.time_all(configs)
    return [race.candidate(config) for config in configs]


def digest_of_values(values: Mapping[str, Any]) -> str:
    """Give sixteen hex digits over all values that the axes of a platform's spaces may have."""
    return hashlib.sha256(key_of(values).encode()).hexdigest()[:16]
