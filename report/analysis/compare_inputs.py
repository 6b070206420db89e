"""The two sides of a comparison: the runs of every case on each, and whether the two may be compared at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spmark.impls.core.errors import RecordError
from spmark.impls.core.record import Environment
from spmark.report.analysis.run_statistics import by_case, observe
from spmark.report.records import load_every_run

_CASE = ["device", "case_id"]
_VERSION = ["implementation_version", "driver", "protocol_version", "flush"]
_FACTS = ("driver", "cuda", "cpu", "cores", "system", "commit")


class Context(NamedTuple):
    """What must be the same for times to be compared."""

    device: str
    driver: str
    protocol: int

    def __str__(self) -> str:
        return f"{self.device}, driver {self.driver or 'none'}, protocol {self.protocol}"


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    cases: pd.DataFrame
    """The newest run of each case, by device and case id; ``seen`` has its ok runs of that version, by quantity; runs
    with another baseline than the newest run's have no speed-up there."""
    environments: tuple[Environment, ...]

    @property
    def device(self) -> str:
        """The device, the first by name of several."""
        return min(self.contexts).device

    @property
    def contexts(self) -> frozenset[Context]:
        """What the cases were measured under."""
        columns = self.cases[["device", "driver", "protocol_version"]]
        return frozenset(Context(*row) for row in columns.itertuples(index=False))


def read_side(path: str | Path) -> Side:
    """Read a folder or file of records; of each case the newest version counts, and all its runs.

    Raises
    ------
    RecordError
        There are no records, or some have no environment to say which driver they ran with.
    """
    frame = load_every_run(path)
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
    newest = frame.groupby(_CASE, sort=False)[_VERSION].transform("last")
    same = frame[(frame[_VERSION] == newest).all(axis=1)]
    seen: dict[Any, Any] = by_case(observe(_of_one_baseline(same)))
    last = same.drop_duplicates(_CASE, keep="last").set_index(_CASE, drop=False)
    environments = dict(zip(same["environment"], same["facts"], strict=True))
    return Side(name, last.assign(seen=[seen.get(key, {}) for key in last.index]), tuple(environments.values()))


def _of_one_baseline(runs: pd.DataFrame) -> pd.DataFrame:
    """Leave a case's baseline samples only to the runs with the baseline of its last run: of these, speed-ups agree."""
    names = runs["baseline_implementation"]
    of_last = names == runs.groupby(_CASE, sort=False)["baseline_implementation"].transform("last")
    nothing = pd.Series([np.empty(0)] * len(runs), runs.index, object)
    return runs.assign(baseline_samples_us=runs["baseline_samples_us"].where(of_last, nothing))


def paired(before: Side, after: Side, across: bool) -> list[tuple[Any, Any]]:
    """Give the newest runs of the cases that both sides have, in the order of the first.

    Parameters
    ----------
    before, after : Side
        The two sides.
    across : bool
        Match cases of two devices, drivers or protocols; ``device`` is then empty.

    Raises
    ------
    RecordError
        The sides differ in what may not differ, as in the flush, or share no case.
    """
    _refuse_several_flushes(before, after)
    if not across:
        _refuse_other_contexts(before, after)
    first, second = (_cases(side, across) for side in (before, after))
    common = first.index[first.index.isin(second.index)]
    if common.empty:
        raise RecordError(
            f"{before.name} and {after.name}: expected cases that both have, found none among "
            f"{len(first)} and {len(second)}; run the same sweep on both sides"
        )
    rows = (cases.loc[common].itertuples(index=False) for cases in (first, second))
    return list(zip(*rows, strict=True))


def alone(side: Side, other: Side, across: bool) -> list[str]:
    """List the case ids that only ``side`` has."""
    mine, theirs = (_cases(one, across) for one in (side, other))
    return list(mine.loc[~mine.index.isin(theirs.index), "case_id"])


def differences(before: Side, after: Side) -> list[str]:
    """Say what else differs between the machines and the software of the two sides."""
    facts = [_facts(side.environments) for side in (before, after)]
    nothing: set[str] = set()
    pairs = ((name, *(told.get(name, nothing) for told in facts)) for name in sorted({*facts[0], *facts[1]}))
    return [f"{name}: {_listed(old)} -> {_listed(new)}" for name, old, new in pairs if old != new]


def _facts(environments: Iterable[Environment]) -> dict[str, set[str]]:
    told: dict[str, set[str]] = {}
    for environment in environments:
        simple = {name: str(getattr(environment, name)) for name in _FACTS}
        for name, value in ({"device": environment.device.name} | simple | environment.packages).items():
            if value:
                told.setdefault(name, set()).add(value)
    return told


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values)) or "none"


def _cases(side: Side, across: bool) -> pd.DataFrame:
    if not across:
        return side.cases
    devices = sorted(side.cases["device"].unique())
    if len(devices) > 1:
        raise RecordError(
            f"{side.name}: expected records of one device with --across, found {', '.join(devices)}; "
            "name the folder of one"
        )
    return side.cases.assign(device="").set_index("case_id", drop=False)


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


def _refuse_several_flushes(before: Side, after: Side) -> None:
    found = [sorted(side.cases["flush"].unique()) for side in (before, after)]
    if len({flush for flushes in found for flush in flushes}) > 1:
        told = (f"  {side.name}: {', '.join(flushes)}" for side, flushes in zip((before, after), found, strict=True))
        raise RecordError(
            "expected one way to flush caches on both sides, found\n" + "\n".join(told) + "\n"
            "measure one side again, with the other's --flush and another --out"
        )


def _contexts(side: Side) -> str:
    return "; ".join(sorted(map(str, side.contexts)))
