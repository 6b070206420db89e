"""A platform that configs are collected for: SPADE-like, simulated, ours, and not the published simulator.

A simulator computes no result, so that it is no implementation: nothing here makes a record of a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.spade_sim import space
from spmark.impls.spade_sim.simulate import Simulator
from spmark.impls.tuning.platform import CommonLoops, ConfigSamples, digest_of_values
from spmark.impls.tuning.space import Axis, Space

_OWN = (Axis.of("bypass", space.BYPASS), Axis.of("reorder", (False, True)))
"""What phi leaves out; phi sees the barrier in the order of loops."""


class SpadePlatform:
    """`spmark.impls.tuning.platform.Platform` of the simulated accelerator."""

    name: ClassVar[str] = "spade_sim"
    kind: ClassVar[DeviceKind | None] = None
    note: ClassVar[str] = "SPADE-like, simulated; not the published simulator"
    cost_models: ClassVar[Mapping[str, str]] = {"dash": "spmark.impls.dash.cost_models:TransferredScores"}

    def space(self, problem: Problem) -> Space:
        """Give every config that differs from the others on a problem.

        Raises
        ------
        ProblemError
            The problem is not in float32.
        """
        return space.space(problem)

    def default(self, problem: Problem) -> Config:
        """Give the config of a user who knows nothing of the matrix."""
        return space.default(problem)

    def digest(self, op: Op) -> str:
        """Give one digest for both operators, which have the same tunables."""
        values = {"p_row": space.P_ROW, "p_col": space.P_COL, "splits": space.SPLITS}
        return digest_of_values({**values, "own": [axis.values for axis in _OWN]})

    def common(self, config: Config) -> CommonLoops:
        """Give tiles, barrier and split by phi."""
        return space.common(config)

    def own_axes(self, op: Op) -> tuple[Axis, ...]:
        """Give what skips the cache, and whether rows are reordered."""
        return _OWN

    def own(self, config: Config) -> Config:
        """Give bypass and reordering of a config."""
        return {axis.name: config[axis.name] for axis in _OWN}

    def version(self) -> str:
        """Tell versions of the code that a price depends on apart, the parameters of the machine included."""
        return implementation_version(__name__)

    def measure(self, problem: Problem, configs: Sequence[Config], device: DeviceSpec | None) -> list[ConfigSamples]:
        """Price configs: one simulated time each, the same on every machine. O(configs nnz J / d_split) time.

        Raises
        ------
        ProblemError
            The problem is not in float32, or a config does not fit it.
        """
        simulator = Simulator(problem)
        return [ConfigSamples((simulator.run(config).seconds * 1e6,)) for config in configs]
