"""Series of airspeed velocity as our benchmark classes define them, and the list of them that its commands read.

Values come out of the benchmark classes themselves, so an imported sweep and a live run cannot disagree about what is
followed or how it is called. Classes of imported sweeps are no benchmarks that run, and stand here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.util import load_json, write_json

from spmark.impls.core.errors import RecordError
from spmark.impls.core.untrusted import reading
from spmark.suite.benchmarks import tracked

MATRICES = (
    "planetoid/cora", "planetoid/citeseer", "planetoid/pubmed", "dgl/ppi-train-20graphs", "ogb/ogbn-arxiv",
    "snap/web-NotreDame", "twin/proteins_twin", "twin/reddit_twin",
)  # fmt: skip
"""Matrices of imported sweeps that are followed."""
WIDTHS = (32, 128, 512)
"""Widths of imported sweeps that are followed."""


class SweptSpmm(tracked._Times):
    """SpMM of imported sweeps."""

    op = "spmm"
    params = (tracked.IMPLEMENTATIONS, MATRICES, WIDTHS, tracked.DTYPES)


class SweptSddmm(tracked._Times):
    """SDDMM of imported sweeps."""

    op = "sddmm"
    params = SweptSpmm.params


class SweptPlans(tracked._Plans):
    """Plans of imported sweeps."""

    params = (tracked.OPS, tracked.IMPLEMENTATIONS, MATRICES)


class SweptPhases(tracked._Phases):
    """Building in imported sweeps."""

    params = (tracked.OPS, tracked.IMPLEMENTATIONS, MATRICES, tracked.PHASES)


@dataclass(frozen=True)
class Benchmark:
    """A ``track_`` method of a class."""

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
        """Give what the list of benchmarks says of it."""
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
    return _benchmarks((SweptSpmm, SweptSddmm, SweptPlans, SweptPhases))


def live() -> list[Benchmark]:
    """List the benchmarks of the live set, of all machines."""
    return _benchmarks(kind for name, kind in vars(tracked).items() if name.startswith("Live"))


def questions_of(patterns: Sequence[str], left_out: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Give the keys of the questions that benchmarks look up, where their names match.

    Parameters
    ----------
    patterns : sequence of str
        Regular expressions, as ``--bench`` of airspeed velocity takes them; none means all benchmarks.
    left_out : sequence of str
        Methods that are not measured.
    """
    looked_up = _LookedUp()
    for benchmark in (of for of in live() if of.method not in left_out):
        for values in product(*benchmark.owner.params):
            name = f"{benchmark.name}({', '.join(map(repr, values))})"
            if not patterns or any(re.search(pattern, name) for pattern in patterns):
                benchmark.value(looked_up, values)
    return sorted(looked_up)


def write_list(results: Path, benchmarks: Iterable[Benchmark]) -> None:
    """Add benchmarks to the list that commands of airspeed velocity read, or replace them there.

    Parameters
    ----------
    results : Path
        ``results_dir`` of ``asv.conf.json``.
    benchmarks : iterable of Benchmark

    Raises
    ------
    RecordError
        There is another file in the list's place, or it cannot be written.
    """
    path = Benchmarks.get_benchmark_file_path(results)
    with reading(path, "a list of benchmarks of airspeed velocity", RecordError, remedy="delete the file"):
        known = load_json(path, Benchmarks.api_version) if Path(path).exists() else {}
        listed = known | {benchmark.name: benchmark.entry() for benchmark in benchmarks}
        write_json(path, listed, Benchmarks.api_version)


class _LookedUp(dict[tuple[str, ...], Any]):
    """Answers without a value; the keys are those that were looked up."""

    def get(self, key: tuple[str, ...], default: Any = None) -> Any:
        self[key] = {}
        return default


def _benchmarks(kinds: Iterable[type[Any]]) -> list[Benchmark]:
    owners = [kind() for kind in kinds]
    return [Benchmark(owner, name) for owner in owners for name in dir(owner) if name.startswith("track_")]
