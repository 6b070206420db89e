"""``spmark check``: one implementation on every tiny problem, with messages for its author."""

from __future__ import annotations

import faulthandler
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError, KernelFault, SpmarkError, SweepError
from spmark.impls.core.interfaces import Implementation, Plan
from spmark.impls.core.problem import Problem
from spmark.impls.table import name_of
from spmark.suite import conformance
from spmark.suite.cli.console import answer, console, say
from spmark.suite.plan.refusals import make

_ONE = "empty_rows-J20"
"""Part of the names of problems that are taken where one problem is enough."""
_SHOWN = 3


@dataclass(frozen=True)
class Flaw:
    """What is wrong on one problem."""

    rule: str
    problem: str
    expected: str
    found: str
    remedy: str


@dataclass
class Conformance:
    """What was found on one device."""

    device: str
    kind: str
    checked: int = 0
    """Checks that were made."""
    refused: dict[str, str] = field(default_factory=dict)
    """The implementation's reasons for problems that it does not take."""
    flaws: list[Flaw] = field(default_factory=list)


class _LostError(Exception):
    """A GPU computes nothing more in this process."""


def check_implementation(name: str, device: str, as_json: bool) -> bool:
    """Check an implementation where it says that it runs, and show what is wrong; tells whether nothing is.

    Parameters
    ----------
    name : str
        A name of the table, or a class in a file.
    device : str
        As `spmark.impls.runtime.device.find` takes it; ``auto`` means every device that the class names and that is
        here.

    Raises
    ------
    SweepError
        The class cannot be used, or a file is named without a class.
    DeviceError
        The implementation runs on no device that is here, not on the device that was asked for, or lacks a package.
    """
    from spmark.impls.runtime.device import find

    if name.endswith(".py"):
        raise SweepError(f"{name}: expected a class in the file, found its path alone; add the class: {name}:MyKernel")
    faulthandler.enable()  # a kernel may end this process
    screen, how = console(as_json), make(name_of(name), {})
    if isinstance(how, str):
        raise DeviceError(f"{name}: {how}")
    absent: dict[str, str] = {}
    found = []
    for kind in sorted(how.devices) if device == "auto" else [DeviceKind(device)]:
        if kind not in how.devices:
            runs_on = ", ".join(sorted(how.devices))
            raise DeviceError(f"{how.name}: expected a device out of its devices {runs_on}, found {kind}")
        try:
            spec = find(kind.value)
        except DeviceError as error:
            absent[str(kind)] = str(error)
            continue
        say(screen, f"[bold]{escape(how.name)}[/bold] on {escape(spec.name)}")
        found.append(judge(how, spec))
        _show(found[-1], screen)
    for kind_name, reason in absent.items():
        say(screen, f"[yellow]not checked on {kind_name}:[/yellow] {escape(reason)}")
    if not found:
        raise DeviceError(
            f"{how.name}: expected one of its devices to be here, found none: {'; '.join(absent.values())}"
        )
    passed = not any(told.flaws for told in found)
    if as_json:
        devices = [asdict(told) for told in found]
        answer({"implementation": how.name, "passed": passed, "devices": devices, "absent": absent})
    return passed


def judge(how: Implementation, spec: DeviceSpec) -> Conformance:
    """Make every check of an implementation on a device; a fault of a GPU ends the checks.

    Every problem is built and run. What one problem of an operator is enough for comes last.
    """
    told, place, plans = Conformance(spec.name, str(spec.kind)), conformance.Place(spec), dict[str, Plan]()
    wanted = {name: problem for name, problem in conformance.problems().items() if problem.op in how.ops}
    with suppress(_LostError):
        _attempt(told, "contract", "none", conformance.check_contract, how)
        for name, problem in wanted.items():
            built = _attempt(told, "build", name, conformance.build_plan, how, problem, place)
            if isinstance(built, str):
                told.refused[name] = built
            elif built is not None:
                plan = plans[name] = built
                _attempt(told, "result", name, conformance.check_result, plan, problem, place)
                if spec.kind is DeviceKind.HOST_SIMT and name in conformance.ORDERED:
                    _attempt(told, "order", name, conformance.check_orders, plan, problem, place)
        if spec.kind is DeviceKind.HOST_SIMT:
            for op in sorted(how.ops):
                _attempt(told, "offsets", f"{op}-far", conformance.check_offsets, how, op, place)
        for op in sorted(how.ops):
            taken = [name for name in plans if wanted[name].op is op and wanted[name].matrix.nnz > 1]
            one = next((name for name in taken if _ONE in name), next(iter(taken), None))
            if one is not None:
                _check_once(told, one, plans[one], wanted[one], place)
    if not plans and not told.flaws:
        reason = next(iter(told.refused.values()), "no operator")
        taken_none = f"that unsupported refuses all: {reason}"
        told.flaws.append(Flaw("build", "all", "a plan for a tiny problem", taken_none, "mend unsupported"))
    return told


def _check_once(told: Conformance, name: str, plan: Plan, problem: Problem, place: conformance.Place) -> None:
    """Make the checks that one problem of an operator is enough for."""
    _attempt(told, "account", name, conformance.check_account, plan, problem)
    for fault in conformance.WRONG_ARRAYS:
        _attempt(told, "refusal", name, conformance.check_refuses, fault, plan, problem, place)
    _attempt(told, "refusal", name, conformance.check_refuses_number_and_overlap, plan, problem, place)
    if place.spec.kind is DeviceKind.CUDA:
        _attempt(told, "capture", name, conformance.check_capture, plan, problem, place)


def _attempt(told: Conformance, rule: str, name: str, check: Callable[..., Any], *arguments: Any) -> Any:
    """Make one check; an exception becomes a flaw."""
    told.checked += 1
    try:
        return check(*arguments)
    except conformance.NonconformingError as error:
        told.flaws.append(Flaw(rule, name, error.expected, error.found, error.remedy))
    except Exception as error:
        wanted, remedy = "no exception", "mend what raises it"
        if rule == "build":
            wanted, remedy = "a plan, or a reason from unsupported", "mend build, or refuse the problem in unsupported"
        told.flaws.append(Flaw(rule, name, wanted, _told(error), remedy))
        if isinstance(error, KernelFault) and told.kind == DeviceKind.CUDA:
            raise _LostError from error
    return None


def _told(error: Exception) -> str:
    """Give the message of an exception, with the place that raised it where the exception is not one of spmark's."""
    if isinstance(error, SpmarkError):
        return f"{type(error).__name__}: {error}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"


def _show(told: Conformance, screen: Console) -> None:
    for rule, found in groupby(sorted(told.flaws, key=lambda flaw: flaw.rule), key=lambda flaw: flaw.rule):
        flaws = list(found)
        for flaw in flaws[:_SHOWN]:
            say(screen, f"[red]{rule}[/red] on {escape(flaw.problem)}")
            told_so = f"    expected  {flaw.expected}\n    found     {flaw.found}\n    to do     {flaw.remedy}"
            say(screen, escape(told_so))
        if len(flaws) > _SHOWN:
            say(screen, f"    and {len(flaws) - _SHOWN} more of {rule}; --json lists all")
    for reason, names in groupby(sorted(told.refused, key=told.refused.__getitem__), told.refused.get):
        say(screen, escape(f"{len(list(names))} problems refused: {reason}"))
    ended = f"[red]{len(told.flaws)} failed[/red]" if told.flaws else "[green]all passed[/green]"
    say(screen, f"{told.checked} checks, {ended}")
