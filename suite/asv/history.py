"""From records to a result file of airspeed velocity (its layout 2): the values that our benchmarks would have given.

Values come out of the benchmark classes themselves, so an imported sweep and a live run cannot disagree about what is
followed or how it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, isnan
from typing import Any

import numpy as np

from spmark.report.analysis.statistics import median_interval
from spmark.suite.benchmarks import tracked

COLUMNS = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile", "stats_ci_95_a", "stats_ci_95_b",
)  # fmt: skip
"""Columns of a result file: those of airspeed velocity, then the 95 % interval that our reports use."""
SWEPT = (tracked.SweptSpmm, tracked.SweptSddmm, tracked.SweptPlans, tracked.SweptPhases)
_STATS = ("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat")
_STATS_95 = ("stats_ci_95_a", "stats_ci_95_b")


@dataclass(frozen=True)
class Benchmark:
    """A ``track_`` method of a class of the suite."""

    owner: Any
    method: str

    @property
    def name(self) -> str:
        """As airspeed velocity calls it."""
        return f"tracked.{type(self.owner).__name__}.{self.method}"

    @property
    def params(self) -> list[list[str]]:
        """Values of each parameter, as airspeed velocity keeps them: by their repr."""
        return [[repr(value) for value in values] for values in self.owner.params]

    def entry(self) -> dict[str, Any]:
        """Give what ``benchmarks.json`` says of it."""
        function = getattr(self.owner, self.method)
        return {
            "code": inspect.getsource(function),
            "name": self.name,
            "param_names": list(self.owner.param_names),
            "params": self.params,
            "timeout": self.owner.timeout,
            "type": "track",
            "unit": function.unit,
            "version": self.owner.version,
        }

    def value(self, answers: tracked.Answers, combination: Sequence[Any]) -> Any:
        """Give the value of a combination: a number, samples, NaN for n/a, None for a failure."""
        try:
            return getattr(self.owner, self.method)(answers, *combination)
        except RuntimeError:
            return None

    def values(self, answers: tracked.Answers) -> Iterator[Any]:
        """Give the value of every combination, as `value` does."""
        return (self.value(answers, combination) for combination in product(*self.owner.params))


def swept() -> list[Benchmark]:
    """List the benchmarks that sweeps are imported into."""
    return benchmarks_of(SWEPT)


def benchmarks_of(kinds: Iterable[type[Any]]) -> list[Benchmark]:
    """List the benchmarks of classes of the suite."""
    owners = [kind() for kind in kinds]
    return [Benchmark(owner, name) for owner in owners for name in dir(owner) if name.startswith("track_")]


def result_row(benchmark: Benchmark, answers: tracked.Answers, started_ms: int, old: Sequence[Any] | None) -> list[Any]:
    """Give a benchmark's row of a result file, by `COLUMNS`.

    Parameters
    ----------
    benchmark : Benchmark
    answers : mapping
        As the suite's ``setup_cache`` gives them.
    started_ms : int
        When measuring began, in milliseconds since 1970.
    old : sequence or None
        The row that the file already has: of every combination that both have, its cell is kept where the answers say
        nothing.
    """
    kept = _kept(old) if old is not None else {}
    cells = [
        kept.get(combination, cell) if cell["result"] is not None and isnan(cell["result"]) else cell
        for combination, cell in zip(product(*benchmark.params), map(_cell, benchmark.values(answers)), strict=True)
    ]
    row: dict[str, Any] = {name: [cell.get(name) for cell in cells] for name in (*_STATS, *_STATS_95, "samples")}
    row = {name: None if all(value is None for value in values) else values for name, values in row.items()}
    row |= {"result": [cell["result"] for cell in cells], "params": benchmark.params}
    row |= {"version": benchmark.owner.version, "started_at": started_ms, "duration": None, "profile": None}
    return [row[name] for name in COLUMNS]


def _cell(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"result": value}
    samples = [float(seconds) for seconds in value["samples"]]
    middle, wide = median_interval(samples), median_interval(samples, 0.99)
    lower, upper = (float(q) for q in np.quantile(samples, [0.25, 0.75]))
    # Too few samples have no such interval: airspeed velocity then gives the median infinite ends.
    ends = [side if not isnan(side) else none for side, none in zip((wide.low, wide.high), (-inf, inf), strict=True)]
    ends_95 = [None if isnan(side) else side for side in (middle.low, middle.high)]
    stats = [*ends, lower, upper, value["number"], len(samples)]
    return {"result": middle.value, "samples": samples, **dict(zip(_STATS + _STATS_95, stats + ends_95, strict=True))}


def _kept(old: Sequence[Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Give the cells of a row of a result file, by the combination of parameters that each is of."""
    row = dict(zip(COLUMNS, old, strict=False))
    columns = {name: row[name] for name in ("result", "samples", *_STATS, *_STATS_95) if row.get(name) is not None}
    cells = zip(product(*row["params"]), *columns.values(), strict=False)
    return {combination: dict(zip(columns, cell, strict=True)) for combination, *cell in cells if "result" in columns}
