"""Which cases go to a worker together, and which go first: by an estimate of seconds that was learned from records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from statistics import median

from spmark.datasets.sources.table import find_source
from spmark.records.schema import CaseSpec
from spmark.suite.plan.plan import Item

LEAST_S = 60.0
"""Groups of fewer estimated seconds are not split: each part loads the matrix and computes the reference again."""
PARTS = 4
"""Groups stay below a worker's share of all seconds over this, so that the last group to end is no large one."""
FLOPS = 1e8
"""Of a case that takes what the table says for its implementation."""
_NNZ = 1_000_000
"""Of a matrix whose sizes no list holds."""


def grouped(items: Sequence[Item], workers: int) -> list[list[Item]]:
    """Group cases of one problem, split groups that take long, and give the longest group first.

    Parameters
    ----------
    items : sequence of Item
        In the order of a plan, in which cases of one problem stand together.
    workers : int
        That are there when the run begins.
    """
    seconds = {item.spec.case_id: estimated_s(item.spec) for item in items}
    most = max(LEAST_S, sum(seconds.values()) / (PARTS * max(1, workers)))
    groups = [part for _, group in groupby(items, _problem) for part in _split(group, seconds, most)]
    return sorted(groups, key=lambda group: sum(seconds[item.spec.case_id] for item in group), reverse=True)


def run_s(cases: Iterable[CaseSpec], workers: int) -> float:
    """Estimate the seconds that workers take for cases together: no more workers make the longest case shorter."""
    seconds = [estimated_s(case) for case in cases]
    return max(sum(seconds) / workers, max(seconds, default=0.0))


def estimated_s(case: CaseSpec) -> float:
    """Estimate the seconds that a case takes, from loading to its last sample, before its matrix is there."""
    exponent, table = learned()
    facts = find_source(case.matrix.source).likely(case.matrix.name)
    flops = 2 * case.width * (facts.nnz if facts else _NNZ)
    own = table.get(case.implementation, median(table.values()))
    return own * float(((flops + FLOPS) / FLOPS) ** exponent)


@cache
def learned() -> tuple[float, Mapping[str, float]]:
    """Give an exponent of flops, and seconds by implementation at `FLOPS`, as ``seconds.tsv`` holds them.

    ``scripts/studies/cluster_scaling.py --fit`` makes the file from published records.
    """
    lines = (files("spmark.suite.cluster") / "seconds.tsv").read_text(encoding="utf-8").splitlines()
    rows = dict(line.split("\t") for line in lines[1:])
    exponent = float(rows.pop("exponent"))
    return exponent, {name: float(value) for name, value in rows.items()}


def _split(group: Iterator[Item], seconds: Mapping[str, float], most: float) -> Iterator[list[Item]]:
    part: list[Item] = []
    taken = 0.0
    for item in group:
        own = seconds[item.spec.case_id]
        if part and taken + own > most:
            yield part
            part, taken = [], 0.0
        part.append(item)
        taken += own
    yield part


def _problem(item: Item) -> tuple[object, ...]:
    case = item.spec
    return case.matrix.model_dump_json(), case.op, case.width, case.width_in, case.dtype, case.scaled, case.seed
