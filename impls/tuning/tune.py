"""From kernel families to the fastest plan: their configs race, the winner's plan is kept, and its config on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Search
from spmark.impls.core.relational import AnyProblem
from spmark.impls.kernels.family import Build, KernelFamily
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, open_target
from spmark.impls.runtime.template import Instance
from spmark.impls.tuning.cache import PlanCache, searched
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import Space

Strategy = Callable[[Race[DevicePlan]], object]
"""Asks a race for the times of configs."""


def tune(
    problem: AnyProblem,
    device: DeviceSpec,
    families: Sequence[KernelFamily],
    strategy: Strategy,
    *,
    owner: str,
    pinned: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    measured: bool = True,
) -> DevicePlan:
    """Give the plan that won the race among the configs of some families.

    The plan that was timed is the plan that is given: nothing is converted, compiled or uploaded again. Another process
    builds the config from disk.

    Parameters
    ----------
    problem : Problem or RelationalProblem
    device : DeviceSpec
    families : sequence of KernelFamily
        Where nothing can be measured, the first one's default is built.
    strategy : callable
        Asks the race for configs of the families' spaces.
    owner : str
        The implementation's folder, under which the result is kept.
    pinned : mapping, optional
        Tunables that are not searched.
    facts : mapping, optional
        What else tells this search from others of the implementation.
    measured : bool
        Whether to race; without a GPU, or without non-zeros, there is no race in any case.

    Raises
    ------
    BuildError
        No candidate could be used, with the reasons. Or the kept config is none that the search may give.
    """
    pinned = dict(pinned or {})
    build = builder(problem, open_target(device), families)
    spaces = [space_of(family, problem, pinned) for family in families]
    if not measured or device.kind is not DeviceKind.CUDA or problem.matrix.nnz == 0:
        default = families[0].default
        return build(default(problem, pinned) if default else next(spaces[0].configs()))

    def search() -> tuple[Config, DevicePlan, Search]:
        race = open_race(problem, device, families)
        strategy(race)
        return *race.finish(), race.describe()

    cache = PlanCache(owner, problem, device, {**pinned, **(facts or {})})
    kept, plan = searched(cache, search, lambda config: any(config in space for space in spaces))
    plan = plan or build(kept.config)
    plan.charge(kept.phases_s)
    plan.search = kept.search
    return plan


def space_of(family: KernelFamily, problem: AnyProblem, pinned: Mapping[str, Any] | None = None) -> Space:
    """Give a family's configs for a problem that agree with pinned tunables."""
    pinned = dict(pinned or {})
    axes = family.axes(problem, pinned)
    several = {name for values in axes.values() for value in values if isinstance(value, Mapping) for name in value}
    fixed = {name: (value,) for name, value in pinned.items() if name in axes or name not in several}
    return Space.of({**axes, **fixed}, lambda config: family.has(problem, config))


def builder(problem: AnyProblem, target: Target, families: Sequence[KernelFamily]) -> Build:
    """Give what builds configs of some families; plans of one family share what they can."""
    opened: dict[str, Build] = {}

    def build(config: Config) -> DevicePlan:
        family = family_of(families, config)
        if family.mark not in opened:
            opened[family.mark] = family.opened(problem, target)
        return opened[family.mark](config)

    return build


def family_of(families: Sequence[KernelFamily], config: Mapping[str, Any]) -> KernelFamily:
    """Give the family of a config of one of them."""
    return next(family for family in families if family.mark in config)


def open_race(
    problem: AnyProblem, device: DeviceSpec, families: Sequence[KernelFamily], **options: Any
) -> Race[DevicePlan]:
    """Open a race among configs of some families on the present GPU; ``options`` are those of `Race`."""
    from spmark.impls.tuning.timer import timer_of

    target, known = open_target(device), set[Instance]()

    def prepare(configs: Sequence[Config]) -> None:
        kernels = [family_of(families, config).kernel for config in configs]
        wanted = dict.fromkeys(k(problem, config) for k, config in zip(kernels, configs, strict=True) if k)
        target.begin([one for one in wanted if one not in known])
        known.update(wanted)

    return Race(builder(problem, target, families), timer_of(problem, device), prepare=prepare, **options)
