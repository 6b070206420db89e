"""What a kernel tells a search: its space, its default, and how a config becomes a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Built, Config, DeviceArray
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import Instance

F = TypeVar("F")
Axes = Mapping[str, Sequence[Any]]
"""Values of tunables by name, in the order of trying. A value that is a mapping sets several tunables at once."""
Build = Callable[[Config], DevicePlan]
"""Builds the plan of a config; raises BuildError or MemoryError."""


@dataclass(frozen=True)
class KernelFamily:
    """A kernel, with or without a choice of formats, as `spmark.impls.tuning.tune` takes it.

    What a tunable is allowed to be stands in two places: the kernel's source, whose ``static_assert``s are the
    restrictions, and the family's axes. Its problems are all `Problem`s, or all `RelationalProblem`s.
    """

    mark: str
    """A tunable that configs of this family have, and configs of families behind it in a race have not."""
    axes: Callable[[Any, Config], Axes]
    """Gives the space for a problem and pinned tunables. Pins that are axes of their own need not be respected."""
    opened: Callable[[Any, Target], Build]
    """Gives what builds plans of one problem; these plans share what they can."""
    default: Callable[[Any, Config], Config] | None = None
    """Gives the config that is built where nothing can be measured, for a problem and pinned tunables; None takes the
    first of the space."""
    kernel: Callable[[Any, Config], Instance] | None = None
    """Gives a config's kernel, or raises BuildError; None where `Target.load` does not compile it."""

    def has(self, problem: Any, config: Config) -> bool:
        """Tell whether there is a kernel for a config."""
        try:
            return self.kernel is None or self.kernel(problem, config) is not None
        except BuildError:
            return False


class OneFormat(Generic[F]):
    """A matrix in one format after the other; plans of the same format share it, and its arrays on the target.

    Each plan reports the seconds that building it alone takes: shared conversions and uploads are part of them.

    Parameters
    ----------
    names : sequence of str
        The tunables of the format; all others are the schedule's.
    convert : callable
        Gives the format for its tunables.
    build : callable
        Builds a plan of a format, of its tunables, of all others and of the arrays that another plan has uploaded, if
        any.
    """

    def __init__(
        self,
        names: Sequence[str],
        convert: Callable[[Config], F],
        build: Callable[[F, Config, Config, Sequence[DeviceArray]], DevicePlan],
    ) -> None:
        self._names, self._convert, self._build = names, convert, build
        self._held: tuple[Config, F] | None = None
        self._arrays: Sequence[DeviceArray] = ()
        self._converting, self._first_s = Built(), dict[str, float]()
        self._refused: dict[str, str] = {}

    def __call__(self, config: Config) -> DevicePlan:
        """Build a plan; another format than the last takes its place, and one that was refused is not tried again."""
        form, schedule = taken_apart(config, self._names)
        if self._held is None or self._held[0] != form:
            self._held, self._arrays, self._first_s = None, (), {}  # two formats of a large matrix might not fit
            self._converting = Built()
            if str(form) in self._refused:
                raise BuildError(self._refused[str(form)])
            try:
                with self._converting.phase("convert"):
                    self._held = form, self._convert(form)
            except BuildError as error:
                self._refused[str(form)] = str(error)
                raise
        plan = self._build(self._held[1], form, schedule, self._arrays)
        self._arrays, self._first_s = plan.arrays, self._first_s or dict(plan.phases_s)
        for name in ("convert", "upload"):
            plan.phases_s[name] = max(plan.phases_s.get(name, 0.0), self._first_s.get(name, 0.0))
        plan.charge(self._converting.phases_s)
        return plan


def taken_apart(config: Config, names: Sequence[str]) -> tuple[Config, Config]:
    """Split a config into the tunables of these names and all others."""
    return {n: config[n] for n in names if n in config}, {n: v for n, v in config.items() if n not in names}


def tiles_of(
    width: int, loads: Sequence[int], lanes: Sequence[int], vectors: Sequence[int] = (1,)
) -> list[dict[str, int]]:
    """List the tiles that J fills: elements of a load, loads side by side, lanes.

    Parameters
    ----------
    width : int
        J.
    loads, vectors, lanes : sequence of int
        The values, in the order of the list; ``lanes`` change fastest.

    Returns
    -------
    list of dict
        ``vector, vectors, lanes``. Where J fills none, the one with the fewest columns.
    """
    found = [
        {"vector": vector, "vectors": count, "lanes": n}
        for vector in loads
        for count in vectors
        for n in lanes
        if vector * count * n <= width
    ]
    return found or [{"vector": min(loads), "vectors": 1, "lanes": min(lanes)}]
