"""The two sides of a comparison: what each holds of every case, and whether the two may be compared at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.record import Environment, Status
from spmark.report.load.records import load_every_run
from spmark.report.regressions.observe import Observed, by_case, observe

_VERSION = ["implementation_version", "driver", "protocol_version"]


class Context(NamedTuple):
    """What must be the same for times to be compared."""

    device: str
    driver: str
    protocol: int

    def __str__(self) -> str:
        return f"{self.device}, driver {self.driver or 'none'}, protocol {self.protocol}"


@dataclass(frozen=True)
class CaseRuns:
    """Every run that one side has of one case, by the version that ran last."""

    seen: Mapping[str, Observed]
    """Ok runs, oldest first, by quantity."""
    device_kind: DeviceKind
    status: Status
    """Of the newest run."""
    reason: str
    matrix_hash: str
    config: Mapping[str, object]
    baseline: str


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    cases: Mapping[tuple[str, str], CaseRuns]
    """By device and case id."""
    contexts: frozenset[Context]
    environments: tuple[Environment, ...]


def read_side(path: Path) -> Side:
    """Read a folder or file of records; of each case the newest version counts, and all its runs.

    Raises
    ------
    RecordError
        There are no records, or some have no environment to say which driver they ran with.
    """
    frame = load_every_run([path])
    if frame.empty:
        raise RecordError(f"{path}: expected records to compare, found none; run a sweep first")
    unknown = int(frame["facts"].isna().sum())
    if unknown:
        raise RecordError(
            f"{path}: expected the environment of every record in environments.jsonl beside it, found none of "
            f"{unknown} of {len(frame)}; copy that file too"
        )
    frame = frame.assign(driver=[facts.driver for facts in frame["facts"]])
    return side_of(frame, str(path))


def side_of(frame: pd.DataFrame, name: str) -> Side:
    """Group loaded records, with a column ``driver``, by case."""
    newest = frame.groupby(["device", "case_id"], sort=False)[_VERSION].transform("last")
    same = frame[(frame[_VERSION] == newest).all(axis=1)]
    last = same.drop_duplicates(["device", "case_id"], keep="last")
    seen = by_case(observe(same))
    cases = {
        (row.device, row.case_id): CaseRuns(
            seen=seen.get((row.device, row.case_id), {}),
            device_kind=DeviceKind(row.device_kind),
            status=Status(row.status),
            reason=row.reason,
            matrix_hash=row.matrix_hash,
            config=row.config,
            baseline=row.baseline_implementation,
        )
        for row in _rows(last)
    }
    contexts = {Context(row.device, row.driver, row.protocol_version) for row in _rows(last)}
    environments = dict(zip(same["environment"], same["facts"], strict=True))
    return Side(name, cases, frozenset(contexts), tuple(environments.values()))


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    return iter(frame.itertuples(index=False))


def paired(before: Side, after: Side, across: bool) -> dict[tuple[str, str], tuple[CaseRuns, CaseRuns]]:
    """Give the cases that both sides have, in the order of the first.

    Parameters
    ----------
    before, after : Side
        The two sides.
    across : bool
        Match cases of two devices, drivers or protocols.

    Raises
    ------
    RecordError
        The sides differ in what may not differ, or share no case.
    """
    if across:
        first, second = _of_one_device(before), _of_one_device(after)
    else:
        _refuse_other_contexts(before, after)
        first, second = dict(before.cases), dict(after.cases)
    common = {key: (runs, second[key]) for key, runs in first.items() if key in second}
    if not common:
        raise RecordError(
            f"{before.name} and {after.name}: expected cases that both have, found none among "
            f"{len(first)} and {len(second)}; run the same sweep on both sides"
        )
    return common


def alone(side: Side, other: Side, across: bool) -> list[str]:
    """List the case ids that only ``side`` has."""
    if across:
        there = {case for _, case in other.cases}
        return [case for _, case in side.cases if case not in there]
    return [case for device, case in side.cases if (device, case) not in other.cases]


def differences(before: Side, after: Side) -> list[str]:
    """Say what else differs between the machines and the software of the two sides."""
    facts = [_facts(side.environments) for side in (before, after)]
    lines = []
    for name in sorted(set(facts[0]) | set(facts[1])):
        first, second = (found.get(name, set()) for found in facts)
        if first != second:
            lines.append(f"{name}: {_listed(first)} -> {_listed(second)}")
    return lines


def _facts(environments: Iterable[Environment]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for environment in environments:
        simple = {
            name: str(getattr(environment, name)) for name in ("driver", "cuda", "cpu", "cores", "system", "commit")
        }
        for name, value in ({"device": environment.device.name} | simple | environment.packages).items():
            if value:
                found.setdefault(name, set()).add(value)
    return found


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values)) or "none"


def _of_one_device(side: Side) -> dict[tuple[str, str], CaseRuns]:
    devices = {device for device, _ in side.cases}
    if len(devices) > 1:
        raise RecordError(
            f"{side.name}: expected records of one device with --across, found {', '.join(sorted(devices))}; "
            "name the folder of one"
        )
    return {("", case): runs for (_, case), runs in side.cases.items()}


def _refuse_other_contexts(before: Side, after: Side) -> None:
    shared = {c.device for c in before.contexts} & {c.device for c in after.contexts}
    first = {context for context in before.contexts if context.device in shared}
    second = {context for context in after.contexts if context.device in shared}
    if first != second or not shared:
        raise RecordError(
            "expected the same GPU, driver and protocol on both sides, found\n"
            f"  {before.name}: {_contexts(before)}\n  {after.name}: {_contexts(after)}\n"
            "measure one side again, or compare speed-ups over the baseline only, with --across"
        )


def _contexts(side: Side) -> str:
    return "; ".join(sorted(map(str, side.contexts)))
