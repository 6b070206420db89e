"""Which values of the live set a device can have, so that ``asv run`` measures these and prints no others.

Benchmarks keep the parameters of all machines, since parameters identify a history; combinations of parameters are
picked. The benchmarks themselves say which: they are given answers as the device could give them, and combinations that
come out n/a are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan
from typing import Any

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import SweepError
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.record import Status
from spmark.impls.table import IMPLEMENTATIONS
from spmark.suite.asv.history import Benchmark, benchmarks_of
from spmark.suite.benchmarks import tracked
from spmark.suite.roster import ELSEWHERE, refused, runs_elsewhere
from spmark.suite.track import Tracked

Key = tuple[str, ...]
"""Of a question, as `tracked.questions` gives it: op, implementation, matrix, width and dtype of a run."""
_HOST_PHASES = ("convert", "compile")
"""Phases that builds of CPU implementations have: they choose nothing and upload nothing."""
_TITLE = re.compile(r" (tracked\.\w+\.\w+)(?: |$)")


@dataclass(frozen=True)
class PickedSeries:
    """Values of the live set that a device can have."""

    combinations: Mapping[str, tuple[tuple[Any, ...], ...]]
    """Parameters of what is measured, by the benchmark's name."""
    total: int
    """Combinations of the whole live set."""
    left_out: Mapping[str, tuple[str, ...]]
    """Implementations of which nothing runs on the device, by the reason."""

    @property
    def values(self) -> int:
        """Combinations that are measured."""
        return sum(map(len, self.combinations.values()))

    @property
    def patterns(self) -> list[str]:
        """Regular expressions for airspeed velocity's ``--bench``: one for each benchmark."""
        return [
            f"^{re.escape(name)}\\((?:{'|'.join(re.escape(_joined(values)) for values in combinations)})\\)$"
            for name, combinations in self.combinations.items()
        ]


def pick(device: DeviceSpec, only: Sequence[str] = ()) -> PickedSeries:
    """Pick what a device can have.

    Parameters
    ----------
    device : DeviceSpec
        Asking imports what implementations are made on: seconds for some.
    only : sequence of str
        Regular expressions as ``--bench`` takes them; of several, one has to match.

    Raises
    ------
    SweepError
        An entry is not a regular expression, or the entries leave no value that the device can have.
    """
    asked = dict(tracked.questions())
    refusals = {key: _refusal(question, device) for key, question in asked.items() if question["what"] == "run"}
    # Conversions and searches are the host's, and run everywhere.
    answers = {key: _possible(asked[key], device.kind) for key in asked if refusals.get(key) is None}
    combinations: dict[str, tuple[tuple[Any, ...], ...]] = {}
    total = 0
    for benchmark in live():
        every = list(product(*benchmark.owner.params))
        here = tuple(
            values
            for values, value in zip(every, benchmark.values(answers), strict=True)
            if not _is_na(value) and _wanted(f"{benchmark.name}({_joined(values)})", only)
        )
        total += len(every)
        if here:
            combinations[benchmark.name] = here
    if not combinations:
        wanted = f" that match {' or '.join(only)}" if only else ""
        raise SweepError(f"expected values of the live set{wanted} that {device.name} can have, found none")
    return PickedSeries(combinations, total, _left_out(refusals, device))


def shown(lines: Iterable[str], picked: PickedSeries) -> Iterator[str]:
    """Leave rows of combinations that were not picked out of what ``asv run`` prints: its tables have all of them."""
    names = {name for benchmark in live() for name in benchmark.owner.param_names}
    rows: set[tuple[str, ...]] = set()
    columns, rules = 0, 0
    for line in lines:
        words = line.split()
        if title := _TITLE.search(line):
            rows = {tuple(map(str, values)) for values in picked.combinations.get(title[1], ())}
        elif words and words[0] in names:
            # A parameter may be folded into columns: its values stand here, and not its name.
            columns, rules = sum(word in names for word in words), 0
        elif words and set(words[0]) <= set("=-"):
            rules += 1
        elif columns and rules == 1 and not any(row[:columns] == tuple(words[:columns]) for row in rows):
            continue
        yield line


def live() -> list[Benchmark]:
    """List the benchmarks of the live set."""
    return benchmarks_of(kind for name, kind in vars(tracked).items() if name.startswith("Live"))


def _refusal(question: Mapping[str, Any], device: DeviceSpec) -> str | None:
    asked = question["implementation"], Op(question["op"]), question["width"], DType(question["dtype"])
    return refused(*asked, device)


def _possible(question: Mapping[str, Any], kind: DeviceKind) -> tracked.Answer:
    """Give an answer with every value that a device of this kind can give."""
    host = kind is DeviceKind.CPU
    is_baseline = "baseline" in question and question["implementation"] == question["baseline"][kind]
    return Tracked(
        status=Status.OK,
        samples_s=[1.0],
        baseline_s=[] if is_baseline else [1.0],
        cpu_s=[1.0],
        phases_s={name: [1.0] for name in (_HOST_PHASES if host else tracked.PHASES)},
        predicted_s=1.0,
        candidates=[] if host else [(1.0, 1.0)],
    ).model_dump(mode="json")


def _joined(values: Sequence[Any]) -> str:
    """Give parameters as airspeed velocity has them in the name of a combination."""
    return ", ".join(map(repr, values))


def _is_na(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _wanted(name: str, only: Sequence[str]) -> bool:
    try:
        return not only or any(re.search(pattern, name) for pattern in only)
    except re.error as error:
        raise SweepError(f"expected regular expressions of benchmarks, found {' '.join(only)}: {error}") from error


def _left_out(refusals: Mapping[Key, str | None], device: DeviceSpec) -> dict[str, tuple[str, ...]]:
    """Give the implementations that run nothing on the device, by the reason of their first followed build."""
    built = [key for key, question in tracked.questions() if question.get("builds")]
    names: dict[str, tuple[str, ...]] = {}
    for name in IMPLEMENTATIONS:
        reasons = [reason for key, reason in refusals.items() if key[1] == name]
        if reasons and None not in reasons:
            first = refusals[next(key for key in built if key[1] == name)]
            why = ELSEWHERE[device.kind] if runs_elsewhere(name, {}, device.kind) else str(first)
            names[why] = (*names.get(why, ()), name)
    return names
