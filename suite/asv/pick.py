"""Which values of the live set a device can have, so that airspeed velocity measures these and prints no others.

Benchmarks keep the parameters of all machines, since parameters identify a history; combinations of parameters are
picked. The benchmarks themselves say which: they are given answers as the device could give them, and combinations that
come out n/a are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan
from typing import Any

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.record import Status
from spmark.impls.table import IMPLEMENTATIONS
from spmark.suite.asv.history import Benchmark, benchmarks_of
from spmark.suite.asv.track import Tracked
from spmark.suite.benchmarks import tracked
from spmark.suite.plan.refusals import ELSEWHERE, refused, runs_elsewhere

Key = tuple[str, ...]
"""Of a question, as `tracked.questions` gives it: op, implementation, matrix, width and dtype of a run."""
_HOST_PHASES = ("convert", "compile")
"""Phases that builds of CPU implementations have: they choose nothing and upload nothing."""


@dataclass(frozen=True)
class PickedSeries:
    """Values of the live set that a device can have."""

    places: Mapping[str, tuple[int, ...]]
    """Places of what is measured among all combinations of a benchmark's parameters, by the benchmark's name."""
    questions: frozenset[Key]
    """What has to be asked for these values."""
    total: int
    """Combinations of the whole live set."""
    left_out: Mapping[str, tuple[str, ...]]
    """Implementations that were asked for and of which nothing runs on the device, by the reason."""

    @property
    def values(self) -> int:
        """Combinations that are measured."""
        return sum(map(len, self.places.values()))


def pick(device: DeviceSpec, only: Sequence[str] = ()) -> PickedSeries:
    """Pick what a device can have.

    Parameters
    ----------
    device : DeviceSpec
        Asking imports what implementations are made on: seconds for some.
    only : sequence of str
        Regular expressions as ``--bench`` takes them; of several, one has to match.
    """
    answers = _Possible(device)
    places: dict[str, tuple[int, ...]] = {}
    questions: set[Key] = set()
    total = 0
    for benchmark in live():
        here = []
        for place, values in enumerate(product(*benchmark.owner.params)):
            total += 1
            name = f"{benchmark.name}({', '.join(map(repr, values))})"
            if only and not any(re.search(pattern, name) for pattern in only):
                continue
            if not _is_na(benchmark.value(answers, values)):
                here.append(place)
                questions.add(answers.asked)
        if here:
            places[benchmark.name] = tuple(here)
    return PickedSeries(places, frozenset(questions), total, _left_out(answers.refusals, device))


def live() -> list[Benchmark]:
    """List the benchmarks of the live set."""
    return benchmarks_of(kind for name, kind in vars(tracked).items() if name.startswith("Live"))


class _Possible(dict[Key, tracked.Answer]):
    """Answers with every value that a device can give, made when a benchmark looks them up."""

    def __init__(self, device: DeviceSpec) -> None:
        self.refusals: dict[Key, str | None] = {}
        """Why an implementation that was looked up cannot run, or None."""
        self.asked: Key = ()
        """What was looked up last."""
        self._device, self._questions = device, dict(tracked.questions())

    def get(self, key: Key, default: Any = None) -> Any:
        self.asked = key
        question = self._questions.get(key)
        if question is None:
            return default
        # Conversions and searches are the host's, and run everywhere.
        if question["what"] == "run" and key not in self.refusals:
            asked = question["implementation"], Op(question["op"]), question["width"], DType(question["dtype"])
            self.refusals[key] = refused(*asked, self._device)
        return default if self.refusals.get(key) else _possible(question, self._device.kind)


def _possible(question: Mapping[str, Any], kind: DeviceKind) -> tracked.Answer:
    """Give an answer with every value that a device of this kind can give."""
    host = kind is DeviceKind.CPU
    is_baseline = "baseline" in question and question["implementation"] == question["baseline"][kind]
    return Tracked(
        status=Status.OK,
        samples_s=[1.0],
        baseline_s=[] if is_baseline else [1.0],
        cpu_s=[1.0],
        baseline_cpu_s=[1.0],
        phases_s={name: [1.0] for name in (_HOST_PHASES if host else tracked.PHASES)},
        predicted_s=1.0,
        candidates=[] if host else [(1.0, 1.0)],
    ).model_dump(mode="json")


def _is_na(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _left_out(refusals: Mapping[Key, str | None], device: DeviceSpec) -> dict[str, tuple[str, ...]]:
    """Give the implementations that run nothing on the device, by the reason of a followed build if one was asked."""
    built = [key for key, question in tracked.questions() if question.get("builds")]
    names: dict[str, tuple[str, ...]] = {}
    for name in IMPLEMENTATIONS:
        reasons = {key: reason for key, reason in refusals.items() if key[1] == name}
        if reasons and None not in reasons.values():
            first = next((key for key in built if key in reasons), next(iter(reasons)))
            why = ELSEWHERE[device.kind] if runs_elsewhere(name, {}, device.kind) else str(reasons[first])
            names[why] = (*names.get(why, ()), name)
    return names
