"""The spaces of the paper's own search, every config of which is measured.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, sections 4.2.1 and 4.2.2, with the schedules of its public code.
The default search has further formats and schedules, and ends an axis where times become worse (`search.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.kernels.sddmm import GROUPS
from spmark.impls.runtime.template import loads_of
from spmark.impls.sparsetir.search import PARTITIONS, rule_width
from spmark.impls.tuning.space import Axis, Space

LANES = 32
"""Threads that share a row of C."""


class SpaceOwner(StrEnum):
    """Whose search."""

    OWN = "own"
    """Ours: hyb beside CSR as it comes, more widths and orders of rows, and schedules one axis after the other."""
    PAPER = "paper"
    """The paper's: every config of `paper_space`."""


def paper_space(problem: Problem, pinned: Mapping[str, Any]) -> Space:
    """Give the configs that the paper's search measures.

    Parameters
    ----------
    problem : Problem
    pinned : mapping
        Any of ``c`` and ``max_width`` of SpMM, which are then not searched.

    Returns
    -------
    Space
        SpMM: hyb(c, k) with c out of 1, 2, 4, 8, 16 and k = ceil(log2(nnz / I)). The rest of a folded row stays in the
        last bucket, and rows stand by width. A group of 32 threads takes 2^k elements of A. Its threads own one or two
        columns (the public code's coarsening factor).

        SDDMM: ``vector, lanes, batch`` and 1, 2, 4 or 8 groups of a block. Rows come from an array.
    """
    return _sddmm(problem) if problem.op is Op.SDDMM else _spmm(problem, pinned)


def _spmm(problem: Problem, pinned: Mapping[str, Any]) -> Space:
    width = pinned.get("max_width", rule_width(problem))
    form = {"max_width": width, "order": "width", "tail_in_last": True}
    schedule = {"vector": 1, "lanes": LANES, "work": width, "threads": 128, "spread": NEVER, "together": NEVER}
    return Space(
        (
            Axis.of("c", (pinned["c"],) if "c" in pinned else PARTITIONS),
            Axis("fixed", (form | schedule,)),
            Axis.of("vectors", (1, 2) if problem.width > LANES else (1,)),
        )
    )


def _sddmm(problem: Problem) -> Space:
    loads = [
        {"vector": vector, "lanes": lanes}
        for vector in sorted(loads_of(problem.width, 4))
        for lanes in (8, 16, 32)
        if vector * lanes <= problem.width
    ]
    tiles = [
        {**load, "threads": groups * load["lanes"]}
        for load in loads or [{"vector": 1, "lanes": 8}]
        for groups in GROUPS
    ]
    return Space((Axis("tile", tuple(tiles)), Axis.of("batch", (1, 2, 4)), Axis.of("searched", (False,))))
