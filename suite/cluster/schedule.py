"""Which cases go to a worker together, and which go first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from spmark.records.schema import CaseSpec
from spmark.suite.plan.plan import Item


def grouped(items: Sequence[Item], workers: int) -> list[list[Item]]:
    """Group cases of one problem, the longest group first.

    Parameters
    ----------
    items : sequence of Item
        In the order of a plan, in which cases of one problem stand together.
    workers : int
        That are there when the run begins.
    """
    return sorted((list(group) for _, group in groupby(items, _problem)), key=len, reverse=True)


def _problem(item: Item) -> tuple[object, ...]:
    case: CaseSpec = item.spec
    return case.matrix.id, case.matrix.model_dump_json(), case.op, case.width, case.dtype, case.scaled, case.seed
