"""Which sweeps a paper's figures need, in order of importance, and how to run as many of them as a budget allows.

A paper is a YAML file under `datasets/sweeps/papers`; its cases are those of the packaged sweeps, so that what one
paper, or ``spmark run``, has measured counts for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import SweepError, near
from spmark.impls.core.plainyaml import parse_yaml
from spmark.impls.core.problem import Op
from spmark.impls.core.untrusted import Frozen, reading
from spmark.impls.table import IMPLEMENTATIONS, OTHERS, find_platform
from spmark.records.schema import Environment, Status
from spmark.suite.plan.plan import Chosen, choose, completed
from spmark.suite.plan.refusals import refusal
from spmark.suite.plan.resume import History

ALL = "all"
"""Stands for every packaged paper."""
_BUDGET = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Step(Frozen):
    """Cases of one sweep that show one thing."""

    sweep: str
    """Name of a packaged sweep, or a file."""
    only: tuple[str, ...] = ()
    """Filters, as ``spmark run --only`` takes them."""
    shows: str
    """What the reader sees once these cases are there."""
    as_listed: bool = False
    """Run the implementations that the sweep lists, which may be variants of one, instead of the paper's."""

    def overrides(self, paper: Paper) -> list[str]:
        """Give what ``--set`` takes to run the sweep for a paper."""
        return [] if self.as_listed else [f"implementations={json.dumps(paper.implementations)}"]


class Collected(Frozen):
    """Problems of a sweep whose configs are measured."""

    sweep: str
    """Name of a packaged sweep, or a file."""
    shard: str = "1/1"
    """Every M-th matrix, beginning with the N-th: ``N/M``."""


class PaperStudy(Frozen):
    """A study of models that move between platforms, small enough for a budget of minutes."""

    method: str
    """What moves, as ``spmark study`` takes it."""
    source: str
    """The platform of pre-training."""
    targets: _Names
    """Platforms that are judged, one study each; what needs a GPU is left out on a machine without one."""
    pretraining: Collected
    fine_tuning: Collected
    evaluation: Collected
    ops: tuple[Op, ...]
    configs: Annotated[int, Field(ge=1)]
    """Configs of a problem that are measured."""
    source_matrices: Annotated[int, Field(ge=1)]
    target_matrices: Annotated[int, Field(ge=1)]
    seeds: Annotated[int, Field(ge=1)]
    epochs: Annotated[int, Field(ge=1)]
    methods: tuple[str, ...] = ()
    """What is compared; empty for all."""

    def able(self, kind: DeviceKind) -> list[str]:
        """Give the targets that a machine with this kind of device has: hosts and simulators are everywhere."""
        kinds = {name: find_platform(name).kind for name in self.targets}
        return [name for name, needed in kinds.items() if needed in (None, DeviceKind.CPU, kind)]


class Paper(Frozen):
    """What there is to run for a paper."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    title: str
    citation: str
    needs: _Names
    """Implementations without which there is nothing to show."""
    beside: _Names
    """Implementations to compare with; those that are not in the table are left out."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    """Most important first; a case of an earlier step may be named again."""
    study: PaperStudy | None = None
    """Of papers about models that move between platforms."""

    @property
    def implementations(self) -> list[str]:
        """Those of SpMM and SDDMM that are in the table, the paper's own first; other steps run their sweep's."""
        return [name for name in dict.fromkeys((*self.needs, *self.beside)) if name in IMPLEMENTATIONS]

    @property
    def left_out(self) -> list[str]:
        """Implementations to compare with that do not exist yet."""
        return [name for name in self.beside if name not in IMPLEMENTATIONS]


@dataclass(frozen=True)
class StepCases:
    """The cases of one step of a paper."""

    paper: Paper
    step: Step
    chosen: Chosen
    """With the implementations that are run; the name of its sweep is the folder of the records."""


def packaged_papers() -> dict[str, Path]:
    """Give the papers that ship with spmark, by name."""
    folder = Path(str(files("spmark.datasets"))) / "sweeps" / "papers"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_papers(name: str) -> list[Paper]:
    """Read one paper by its name or file, or every packaged one for ``all``.

    Raises
    ------
    SweepError
        There is no such paper, or its file is invalid.
    """
    packaged = packaged_papers()
    if name == ALL:
        return [_read(path) for path in packaged.values()]
    path = packaged.get(name) or Path(name)
    if not path.is_file():
        names = [*packaged, ALL]
        raise SweepError(f"expected a paper out of {', '.join(names)}, or a file, found {name!r}{near(name, names)}")
    return [_read(path)]


def _read(path: Path) -> Paper:
    with reading(path, "a paper in YAML", SweepError):
        data = parse_yaml(path.read_bytes(), str(path), SweepError)
        try:
            return Paper.model_validate(data)
        except ValidationError as error:
            lines = [f"{path}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            raise SweepError("\n".join(lines)) from error


def seconds(budget: str) -> float:
    """Turn ``90s``, ``30m``, ``2h`` or ``1h30m`` into seconds.

    Raises
    ------
    SweepError
        The text is not such a time, or the time is zero.
    """
    match = _BUDGET.fullmatch(budget.strip().lower())
    total = (
        sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not total:
        raise SweepError(f"--budget: expected a time such as 90s, 30m, 2h or 1h30m, found {budget!r}")
    return total


def missing(paper: Paper, kind: DeviceKind) -> list[str]:
    """Say why a paper cannot run on a kind of device; no matrix is loaded.

    Raises
    ------
    SweepError
        A sweep of the paper is invalid.
    """
    absent = [name for name in paper.needs if name not in (*IMPLEMENTATIONS, *OTHERS)]
    if absent:
        return [f"its implementation {name} does not exist yet (no line in impls/table.py)" for name in absent]
    ops = {case.op for step in steps(paper, kind) for case in step.chosen.cases}
    reasons = []
    for name in paper.needs:
        refused = [refusal(name, {}, kind, op) for op in sorted(ops)]
        if all(refused):
            reasons.append(f"its implementation {name} {refused[0]}")
    return reasons


def steps(paper: Paper, kind: DeviceKind) -> list[StepCases]:
    """Give a paper's cases on a kind of device, most important first.

    The implementations are the paper's, unless a step asks for the sweep's own.

    Raises
    ------
    SweepError
        A sweep or a filter is invalid.
    """
    sweeps = [Sweep.load(step.sweep, step.overrides(paper)) for step in paper.steps]
    return [
        StepCases(paper, step, choose(sweep, kind, step.only)) for step, sweep in zip(paper.steps, sweeps, strict=True)
    ]


def in_turns(papers: Sequence[Paper], kind: DeviceKind) -> list[StepCases]:
    """Give the steps of several papers: the first of each, then the second of each, and so on."""
    turns = zip_longest(*(steps(paper, kind) for paper in papers))
    return [step for turn in turns for step in turn if step is not None]


def counts(found: StepCases, folder: Path, environment: Environment) -> dict[str, Any]:
    """Count what the records of ``folder`` say of a step: a row for its reader."""
    history = History.read(folder)
    tried = [history.earlier(spec, environment) for spec in completed(found.chosen.cases)]
    done = [one for one in tried if one is not None]
    ok = sum(one.last is Status.OK for one in done)
    shown = {"paper": found.paper.name, "shows": found.step.shows, "sweep": found.chosen.sweep.name}
    return shown | {"cases": len(tried), "ok": ok, "no result": len(done) - ok, "left": len(tried) - len(done)}
