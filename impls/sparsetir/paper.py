"""The spaces of the paper's own search, every config of which is measured.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, sections 4.2.1 and 4.2.2, with the schedules of its public code.
The default search has further formats and schedules, and ends an axis where times become worse (`search.py`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.kernels.family import Axes, tiles_of
from spmark.impls.kernels.hyb_spmm import HYB_SPMM, PARTITIONS, rule_width
from spmark.impls.kernels.sddmm import CSR_SDDMM, GROUPS
from spmark.impls.runtime.template import loads_of

LANES = 32
"""Threads that share a row of C."""


class SpaceOwner(StrEnum):
    """Whose search."""

    OWN = "own"
    """Ours: more widths and orders of rows, and schedules one axis after the other."""
    PAPER = "paper"
    """The paper's: every config of `PAPERS_HYB` or `PAPERS_SDDMM`."""


def _spmm(problem: Problem, pinned: Config) -> Axes:
    width = pinned.get("max_width", rule_width(problem))
    form = {"max_width": width, "order": "width", "tail_in_last": True}
    schedule = {"vector": 1, "lanes": LANES, "work": width, "threads": 128, "spread": NEVER, "together": NEVER}
    return {
        "c": (pinned["c"],) if "c" in pinned else PARTITIONS,
        "fixed": (form | schedule,),
        "vectors": (1, 2) if problem.width > LANES else (1,),
    }


def _sddmm(problem: Problem, pinned: Config) -> Axes:
    tiles = [
        {"vector": tile["vector"], "lanes": tile["lanes"], "threads": groups * tile["lanes"]}
        for tile in tiles_of(problem.width, sorted(loads_of(problem.width, 4)), (8, 16, 32))
        for groups in GROUPS
    ]
    return {"tile": tiles, "batch": (1, 2, 4)}


PAPERS_HYB = replace(HYB_SPMM, axes=_spmm, default=None)
"""hyb(c, k) with c out of 1, 2, 4, 8, 16 and k = ceil(log2(nnz / I)).

The rest of a folded row stays in the last bucket, and rows stand by width. A group of 32 threads takes 2^k elements of
A. Its threads own one or two columns (the public code's coarsening factor)."""
PAPERS_SDDMM = replace(CSR_SDDMM, axes=_sddmm, default=None)
"""SDDMM with 1, 2 or 4 non-zeros and 1, 2, 4 or 8 groups of a block. Rows come from an array."""
