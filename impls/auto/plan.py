"""The union of the table: which implementation serves a problem, by a rule, a learned selector or a short race.

Rice, "The algorithm selection problem", Advances in Computers 15, 1976, names the parts: problems, features, a
portfolio, and a mapping from the features to the portfolio.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any, ClassVar

from spmark.impls.auto.model import TRAINED_ON, Expected, ranked, read, worth_a_race
from spmark.impls.auto.portfolio import BASELINE, Features, by_rule
from spmark.impls.auto.race import Choice, Chosen, begin, fastest, first
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Built, Config, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.table import create

_SHARE = 0.1
"""Where the number of runs is known: the share of their time that building a further candidate may take."""


class Mode(StrEnum):
    """What a choice may cost."""

    RULE = "rule"
    LEARNED = "learned"
    RACE = "race"


@dataclass(frozen=True)
class Auto:
    """SpMM and SDDMM by whichever implementation is expected, or measured, to be the fastest."""

    name: ClassVar[str] = "auto"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset(DeviceKind)
    kernels: ClassVar[tuple[KernelTemplate, ...]] = ()

    mode: str = Mode.RACE
    """``rule`` measures nothing. ``learned`` builds what the selector expects to be the fastest, and that may search by
    itself. ``race`` measures one to three that the selector names."""
    runs: int = 0
    """Runs that have to pay for searching, converting and compiling; 0 for so many that these do not count."""
    budget_s: float = 0.0
    """Seconds of the race after which no further candidate begins; 0 for no limit."""

    def __post_init__(self) -> None:
        check_choices(self, mode=Mode)
        if self.runs < 0 or not self.budget_s >= 0:
            raise ValueError(f"expected runs and budget_s of at least 0, found {self.runs} and {self.budget_s}")

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> Any:
        """Convert as the chosen implementation does; CSR where that takes A as it comes."""
        how: Any = create(config["chosen"])
        return how.stored_as(problem, device, config) if hasattr(how, "stored_as") else problem.matrix

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse nothing: what one candidate refuses another one takes."""
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Choose, and build what was chosen; the plan's config says so beside its own entries."""
        chosen, own = self.choose(problem, device)
        plan: Any = chosen.plan
        facts: dict[str, Any] = {"mode": str(self.mode), "chosen": chosen.choice.name}
        if chosen.race and self.mode == Mode.LEARNED:
            facts["checked"] = f"a race, since the selector was trained on {TRAINED_ON}"
        own_facts = {f"chosen_{name}": plan.config[name] for name in facts.keys() & plan.config.keys()}
        plan.config = dict(plan.config) | facts | own_facts
        plan.charge(own.phases_s)
        if chosen.race:
            plan.charge(chosen.race.phases_s)
            plan.search = chosen.race.search
        return chosen.plan

    def choose(self, problem: Problem, device: DeviceSpec) -> tuple[Chosen, Built]:
        """Choose and build; also give the seconds of looking at the matrix.

        Raises
        ------
        BuildError
            No candidate takes the problem.
        """
        own = Built()
        entrants, raced = self._entrants(problem, device, own)
        if raced:
            return fastest(problem, device, entrants, self.budget_s or None), own
        return first(problem, device, entrants), own

    def begin(self, problem: Problem, device: DeviceSpec) -> None:
        """Let other cores compile what `choose` will race on a GPU, if it will."""
        entrants, raced = self._entrants(problem, device, Built())
        if raced and device.kind is DeviceKind.CUDA:
            begin(problem, device, entrants, self.budget_s or None)

    def _entrants(self, problem: Problem, device: DeviceSpec, own: Built) -> tuple[list[Choice], bool]:
        """Give what is raced, or else what is tried in this order; charge the seconds of looking at the matrix."""
        with own.phase("features"):
            features = Features.of(problem.matrix)
        with own.phase("select"):
            rule = by_rule(problem.op, features, problem.width, problem.dtype, device.kind)
            named = self._named(problem, device, features)
        if self.mode == Mode.RULE or not (named or device.kind is DeviceKind.CPU):
            return [*rule], False
        # Elsewhere the rule's choice is measured, too: a wrong expectation then costs seconds of building alone.
        known = device.kind is DeviceKind.HOST_SIMT or device.name == TRAINED_ON
        if self.mode == Mode.LEARNED:
            if known:
                return [*(one.choice for one in named), *rule], False
            named = named[:1]
        entrants = [one.choice for one in worth_a_race(named, problem.dtype)]
        entrants += () if known else rule[:1] if named else rule
        if self.mode == Mode.RACE and device.kind is DeviceKind.CUDA:
            entrants.append(BASELINE)
        return list(dict.fromkeys(entrants)), True

    def _named(self, problem: Problem, device: DeviceSpec, features: Features) -> list[Expected]:
        """Name candidates that are expected to be fast, the fastest first; none by the rule, and none on a CPU."""
        if self.mode == Mode.RULE or device.kind is DeviceKind.CPU or not problem.matrix.nnz:
            return []
        expected = ranked(read()[problem.op], features, problem.op, problem.width, problem.dtype, runs=self.runs)
        # All candidates run on a GPU, and some take a second to import.
        on_gpu = device.kind is DeviceKind.CUDA
        able = [one for one in expected if on_gpu or device.kind in one.choice.made().devices]
        most_s = _SHARE * self.runs * able[0].us * 1e-6 if self.runs else inf
        return [one for one in able if one is able[0] or one.build_s <= most_s]
