"""TACO's loop nests as the CPU platform of collected configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.taco_cpu.plan import TacoCpu, TacoPlan
from spmark.impls.taco_cpu.space import CSR, digest_of, space_of
from spmark.impls.tuning.platform import CommonLoops, PlanningPlatform
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.timer import PlanTimer

_OWN = ("formats", "chunk")
"""Axes that only this platform has."""


class CpuPlatform(PlanningPlatform):
    """Loop nests on the host's cores: every core that the process may use."""

    name: ClassVar[str] = "cpu"
    kind: ClassVar[DeviceKind | None] = DeviceKind.CPU
    note: ClassVar[str] = "generated C loop nests in the manner of TACO, measured"
    cost_models: ClassVar[Mapping[str, str]] = {"dash": "spmark.impls.dash.cost_models:TransferredScores"}

    def space(self, problem: Problem) -> Space:
        """Give the space of the operator, whatever the matrix."""
        return space_of(problem.op)

    def default(self, problem: Problem) -> Config:
        """Give TACO's default: CSR with rows in parallel."""
        return dict(CSR)

    def digest(self, op: Op) -> str:
        """Tell versions of the operator's space apart."""
        return digest_of(op)

    def common(self, config: Config) -> CommonLoops:
        """Give splits and order in the paper's letters.

        In the paper's letters j runs over columns of A and k over the dense width, here the other way. Inner loops,
        here called ``i0, j0, k0``, are called ``i2, j2, k2`` there. The loops of a split of 1 are listed, too.
        """
        paper = str.maketrans("jk0", "kj2")
        order = tuple(loop.translate(paper) for loop in config["order"].split())
        return CommonLoops((config["isplit"], config["ksplit"], config["jsplit"]), order)

    def own_axes(self, op: Op) -> tuple[Axis, ...]:
        """Give the level formats, and the iterations of the parallel loop that a thread takes at a time."""
        return tuple(axis for axis in space_of(op).axes if axis.name in _OWN)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse a machine without a compiler."""
        return TacoCpu().unsupported(problem, device)

    def open_race(self, problem: Problem, device: DeviceSpec, **options: Any) -> Race[TacoPlan]:
        """Open a race on the host; ``options`` are those of `Race`."""
        return Race(lambda config: self.plan(problem, device, config), PlanTimer(problem, device), **options)

    def plan(self, problem: Problem, device: DeviceSpec, config: Config) -> TacoPlan:
        """Generate, compile and convert, with a thread for each core and `TacoCpu`'s cap of storage."""
        return TacoPlan(problem, config)
