"""The race among implementations: each is built, checked and timed once, and the winner's plan is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import BuildError, SpmarkError, UnsupportedError
from spmark.impls.core.files import HELD, within
from spmark.impls.core.interfaces import Config, Implementation, Plan, Search
from spmark.impls.core.machine import allowed_cores
from spmark.impls.core.problem import Problem
from spmark.impls.table import create, module_of

if TYPE_CHECKING:
    from spmark.impls.runtime.compile import Ordered
    from spmark.impls.runtime.template import Instance
    from spmark.impls.tuning.cache import Kept, PlanCache

_AUTO = "auto"
_AHEAD = 4
"""Kernels for each core that are compiled before a search asks for them; a search may not ask for all."""


@dataclass(frozen=True)
class Choice:
    """An implementation with pinned tunables."""

    name: str
    config: Config = field(default_factory=dict, hash=False)

    def made(self) -> Implementation:
        """Make the implementation."""
        return create(self.name, self.config)

    def check(self, problem: Problem, device: DeviceSpec) -> Implementation:
        """Make the implementation for a problem.

        Raises
        ------
        UnsupportedError
            It refuses the problem, lacks the operator or the kind of device.
        """
        how = self.made()
        lacking = problem.op not in how.ops or device.kind not in how.devices
        reason = f"expected {problem.op} on {device.kind}" if lacking else how.unsupported(problem, device)
        if reason:
            raise UnsupportedError(f"{self.name}: {reason}")
        return how


@dataclass(frozen=True, eq=False)
class Chosen:
    """A plan, and how it came to be chosen."""

    choice: Choice
    plan: Plan
    held: Mapping[str, bytes] = field(default_factory=dict)
    """Results of the implementation's own searches, by which it builds again without a search."""
    race: Kept | None = None
    """Of the race among implementations, whose candidates are `told`."""


def told(choice: Choice) -> Config:
    """Give the config of a candidate: the implementation's name, and its tunables."""
    return {"implementation": choice.name, **choice.config}


def built(problem: Problem, device: DeviceSpec, choice: Choice, held: Mapping[str, bytes] | None = None) -> Chosen:
    """Build a choice, its searches answered by ``held`` where that holds them.

    Raises
    ------
    UnsupportedError
        The implementation refuses the problem.
    BuildError
        The plan could not be built.
    """
    how, results = choice.check(problem, device), dict(held or {})
    with within(HELD, results):
        return Chosen(choice, how.build(problem, device), results)


def first(problem: Problem, device: DeviceSpec, choices: Sequence[Choice]) -> Chosen:
    """Build the first that takes the problem.

    Raises
    ------
    BuildError
        None does; carries the reasons.
    """
    reasons = []
    for choice in choices:
        try:
            return built(problem, device, choice)
        except (SpmarkError, MemoryError) as error:
            reasons.append(f"{choice.name}: {error}")
    names = ", ".join(dict.fromkeys(choice.name for choice in choices))
    raise BuildError(f"expected one of {names} to take the problem, found none: {'; '.join(reasons)}")


def begin(problem: Problem, device: DeviceSpec, choices: Sequence[Choice], budget_s: float | None = None) -> None:
    """Let other cores compile what `fastest` will need on a GPU, where no earlier race of these choices is kept."""
    from spmark.impls.tuning.cache import has_kept

    if not has_kept(_AUTO) or _cache(problem, device, choices, budget_s).read() is None:
        _begin(problem, device, choices)


def _begin(problem: Problem, device: DeviceSpec, choices: Sequence[Choice]) -> list[Ordered]:
    """Begin as `begin`, and give the kernels that are compiled."""
    from spmark.impls.runtime import compile as compiler
    from spmark.impls.runtime import timing
    from spmark.impls.runtime.template import C_TYPES

    kernels: list[Ordered] = []
    if device.kind is DeviceKind.CUDA:  # what draws, holds and checks comes first, while implementations are imported
        element = C_TYPES[problem.dtype]
        for source, expression in (timing.DRAW, timing.GATE, timing.TAKE):
            kernels.append((timing.KERNELS / source, expression.format(element), device.arch))
        compiler.begin(kernels)
    able = list[Implementation]()
    for choice in choices:
        with suppress(UnsupportedError):
            able.append(choice.check(problem, device))
    named: dict[Instance, None] = {one: None for how in able if hasattr(how, "ahead") for one in how.ahead(problem)}
    some = islice(named, _AHEAD * len(allowed_cores()))
    if more := [(one.template.source, one.expression, device.arch) for one in some]:
        compiler.begin(more)
    for how in able:
        for module in getattr(how, "loops", ()):
            import_module(module)
    return kernels + more


def _cache(problem: Problem, device: DeviceSpec, choices: Sequence[Choice], budget_s: float | None) -> PlanCache:
    """Give the place of a race's result."""
    from spmark.impls.tuning.cache import PlanCache

    versions = [(told(choice), implementation_version(module_of(choice.name))) for choice in choices]
    facts = {"rivals": versions, "budget_s": budget_s, "processors": device.num_sms}
    # The code of `auto` names all implementations: what compares the rivals, and theirs, is what counts.
    return PlanCache(_AUTO, problem, device, facts, code="tuning")


def fastest(problem: Problem, device: DeviceSpec, choices: Sequence[Choice], budget_s: float | None = None) -> Chosen:
    """Race some choices and give the plan that won; the winner of an earlier race of them is built without another.

    Parameters
    ----------
    problem : Problem
    device : DeviceSpec
        Where it has no times, the first that takes the problem is built.
    choices : sequence of Choice
    budget_s : float, optional
        Seconds after which no further candidate begins; one that has begun ends its own search.

    Raises
    ------
    BuildError
        No candidate could be built and gives the right result.
    """
    if device.kind is DeviceKind.HOST_SIMT or len(choices) == 1:
        return first(problem, device, choices)
    from spmark.impls.tuning.cache import Kept, searched

    rivals = {str(told(choice)): choice for choice in choices}
    held: dict[str, Mapping[str, bytes]] = {}

    def made(config: Config) -> Plan:
        made_of = built(problem, device, rivals[str(config)])
        held[str(config)] = made_of.held
        return made_of.plan

    def search() -> tuple[Config, Plan, Search]:
        from spmark.impls.runtime.compile import drop
        from spmark.impls.tuning.race import Race
        from spmark.impls.tuning.timer import timer_of

        begun = _begin(problem, device, choices)
        race = Race(made, timer_of(problem, device), budget_s=math.inf if budget_s is None else budget_s)
        configs = [*map(told, choices)]
        if budget_s is None:  # `auto` names the baseline last: a library, which runs while kernels are compiled
            race.time(configs[-1])
        race.time_all(configs)
        drop(begun)  # those of other products stay
        return *race.finish(configs), race.describe()

    kept, won = searched(_cache(problem, device, choices, budget_s), search, lambda config: str(config) in rivals)
    choice = rivals[str(kept.config)]
    if won is not None:
        return Chosen(choice, won, held[str(kept.config)], kept)
    try:
        again = built(problem, device, choice)
    except (SpmarkError, MemoryError):  # less memory is free now, for instance: another one may still fit
        config, plan, record = search()
        return Chosen(rivals[str(config)], plan, held[str(config)], Kept(config, record, {}))
    return Chosen(choice, again.plan, again.held, kept)
