"""Which implementation serves a problem: the one that is named, the fastest of several, or what `auto` chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt

from spmark.impls.auto.race import Choice, Chosen, built, fastest, first
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, ProblemError, SweepError, none_of
from spmark.impls.core.files import ON_DISK, within
from spmark.impls.core.problem import Op, PlainProblem, Problem
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.runtime.device import calibrated, find
from spmark.impls.runtime.target import open_target
from spmark.impls.table import create, implementation_names, name_of

if TYPE_CHECKING:
    from spmark.impls.auto.plan import Auto

AUTO = "auto"
"""The implementation that chooses among the others."""
PLAIN = "plain"
"""What serves float64 on a GPU, in the place of an implementation's name; on a CPU SciPy does."""


@dataclass(frozen=True)
class Asked:
    """What a person asked of an operator; a saved operator holds it, too."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    op: Op
    device: DeviceSpec
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    """Implementations to choose among; those of a loaded operator may be unknown to this process."""
    scaled: bool = False
    values: Literal["variable", "constant"] = "variable"
    other_width: Literal["plan", "raise"] = "plan"
    budget_s: float | None = None
    cache: bool = True
    """Whether results of searches are read from disk and kept there."""
    runs: PositiveInt | None = None
    """Runs that have to pay for building; None for so many that building does not count."""


def device_of(name: str | DeviceSpec) -> DeviceSpec:
    """Find a device by its name; a GPU has its rates, which searches ask for.

    Raises
    ------
    DeviceError
        There is no such device.
    """
    device = name if isinstance(name, DeviceSpec) else find(name)
    return calibrated(device) if device.kind is DeviceKind.CUDA and not device.read_bytes_per_s else device


def loaded(use: str | Sequence[str]) -> list[str]:
    """Import the files that a person has written in ``use``, and give names alone.

    Only what a person writes comes here: names that stand in a file import nothing (`spmark.impls.table.name_of`).

    Raises
    ------
    ProblemError
        A file cannot be used, or the argument is neither a name nor several.
    """
    try:
        names = [use] if isinstance(use, str) else list(use)
    except TypeError as error:
        raise ProblemError(
            f"use: expected a name of an implementation, or several, found {use!r}: leave use out for 'auto'"
        ) from error
    try:
        return [name_of(one) if isinstance(one, str) else one for one in names]
    except SweepError as error:
        raise ProblemError(f"use: {error}") from error


def one_of(what: str, given: Any, known: Sequence[Any]) -> Any:
    """Check a text or a truth value, and give it back.

    Raises
    ------
    ProblemError
        It is none of the known ones.
    """
    if not isinstance(given, str | bool | np.bool_) or given not in known:
        raise ProblemError(none_of(what, given, known))
    return given


def limits_of(budget_s: Any, runs: Any) -> tuple[float | None, int | None]:
    """Check the seconds of a race and a number of runs.

    Raises
    ------
    ProblemError
        The seconds are no number of at least 0, or the runs no integer of at least 1.
    """
    whole = (int, np.integer)
    for name, given, kinds, least, expected in (
        ("budget_s", budget_s, (*whole, float, np.floating), 0, "of at least 0 seconds, or None for no limit"),
        ("runs", runs, whole, 1, "to be an integer of at least 1, or None"),
    ):
        known = isinstance(given, kinds) and not isinstance(given, bool)
        if given is not None and not (known and given >= least):
            raise ProblemError(f"expected {name} {expected}, found {given!r}")
    return None if budget_s is None else float(budget_s), None if runs is None else int(runs)


def widths_of(width: Any) -> list[Any]:
    """List the widths that a person means by one or several; what is no integer stays, for `Problem` to refuse."""
    several = list(width) if np.iterable(width) and not isinstance(width, str) else [width]
    return [int(one) if isinstance(one, np.integer) else one for one in several]


def names_of(names: Sequence[str], op: Op, device: DeviceSpec, constant: bool) -> tuple[str, ...]:
    """Check the names that a person means.

    Parameters
    ----------
    names : sequence of str
        Of implementations, `AUTO` among them.
    op : Op
    device : DeviceSpec
    constant : bool
        Whether A's values stay as they are.

    Raises
    ------
    ProblemError
        A name is unknown; or an implementation that is named lacks the operator or the device, or would have to write
        A's values into its code while they may change.
    """
    if not names:
        raise ProblemError("expected use to name at least one implementation, found none: leave use out for 'auto'")
    known = implementation_names()
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ProblemError(none_of("use", name, dict.fromkeys((AUTO, *known))))
        how = create(name)
        if op not in how.ops:
            raise ProblemError(f"use={name!r}: expected {op}, found an implementation of {', '.join(sorted(how.ops))}")
        if device.kind not in how.devices:
            kinds = ", ".join(sorted(how.devices))
            raise ProblemError(f"use={name!r}: expected an implementation for {device.kind}, found one for {kinds}")
        if getattr(how, "literal_values", False) and not constant:
            raise ProblemError(
                f"use={name!r}: expected values='constant', since the plan's code holds A's values, found 'variable'"
            )
    return tuple(names)


def check_known(names: Iterable[str], where: str = "") -> None:
    """Refuse names out of a saved operator that this process does not know; ``where`` begins the message.

    Raises
    ------
    BuildError
        Says how a process comes to know an implementation.
    """
    if unknown := sorted({*names} - {PLAIN, *implementation_names()}):
        raise BuildError(
            f"{where}expected implementations that this process knows, found {', '.join(unknown)}: compile the "
            "operator anew, or, where it is a class in a file, compile an operator with that file first"
        )


def choose(problem: Problem, asked: Asked) -> Chosen:
    """Build the fastest of what a person asked for: by `auto`, or of several in a race.

    A single name is built without a race, and the winner of an earlier race, which the disk keeps, without another one.
    On a device without times, and without a budget, the first that takes the problem is built.

    Raises
    ------
    UnsupportedError
        The single implementation refuses the problem.
    BuildError
        No implementation could be built, or this process does not know one of them.
    """
    device, choices = asked.device, [Choice(name) for name in asked.names]
    if isinstance(problem, PlainProblem):
        return build(problem, device, Choice("scipy_cpu" if device.kind is DeviceKind.CPU else PLAIN))
    check_known(asked.names)
    if asked.names == (AUTO,):
        return _auto(asked).choose(problem, device)[0]
    if len(choices) == 1:
        return build(problem, device, choices[0])
    if asked.budget_s == 0:
        return first(problem, device, choices)
    return fastest(problem, device, choices, asked.budget_s)


def _auto(asked: Asked) -> Auto:
    from spmark.impls.auto.plan import Auto, Mode

    mode = Mode.RULE if asked.budget_s == 0 else Mode.RACE
    return Auto(mode, asked.runs or 0, asked.budget_s or 0.0)


def build(problem: Problem, device: DeviceSpec, choice: Choice, held: Mapping[str, bytes] | None = None) -> Chosen:
    """Build a choice, its searches answered by ``held`` where that holds them.

    Raises
    ------
    UnsupportedError
        The implementation refuses the problem.
    BuildError
        The plan could not be built.
    """
    if isinstance(problem, PlainProblem) and choice.name == PLAIN:
        from spmark.impls.kernels.plain import PlainPlan

        return Chosen(choice, PlainPlan(problem, open_target(device)))
    return built(problem, device, choice, held)


def begin_width(matrix: OwnedMatrix, asked: Asked, width: int) -> None:
    """Let other cores compile what `plan_width` will ask for, as far as that is known."""
    problem = matrix.problem(asked.op, width, asked.scaled)
    if asked.names == (AUTO,) and not isinstance(problem, PlainProblem):
        _auto(asked).begin(problem, asked.device)


def plan_width(matrix: OwnedMatrix, asked: Asked, width: int) -> Chosen:
    """Choose and build the plan of one width, and wait until it is on the device."""
    problem = matrix.problem(asked.op, width, asked.scaled)
    with nullcontext() if asked.cache else within(ON_DISK, False):
        choice = choose(problem, asked)
    if asked.device.kind is DeviceKind.CUDA:
        open_target(asked.device).synchronize()
    return choice
