"""Plans of the fixed formats that CELL is compared with: CSR by GE-SpMM's kernel, and BSR."""

from __future__ import annotations

from typing import Any

from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_spmm import BlockSpmmPlan, vector_of
from spmark.impls.kernels.csr_spmm import CsrSpmmPlan, coarsen_for, vector_and_lanes
from spmark.impls.liteform.compose import BLOCK, Choice, StoredAs
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target


def fixed_plan(problem: Problem, target: Target, choice: Choice, facts: dict[str, Any], own: Built) -> DevicePlan:
    """Convert where the format needs it, and upload.

    Parameters
    ----------
    problem : Problem
    target : Target
    choice : Choice
        Of any form but CELL.
    facts : dict
        Entries of the plan's config.
    own : Built
        Charged for the conversion.
    """
    if choice.form is StoredAs.BSR:
        with own.phase("convert"):
            blocks = BsrFormat.from_csr(problem.matrix, BLOCK, BLOCK)
        depth = BLOCK if vector_of(problem.width) > 1 else BLOCK // 2
        return BlockSpmmPlan(problem, target, blocks, {**facts, "block": BLOCK}, tile=64, depth=depth)
    vector, lanes = vector_and_lanes(problem.width, problem.dtype)
    coarsen = coarsen_for(problem, target.spec)
    return CsrSpmmPlan(problem, target, facts, vector=vector, lanes=lanes, coarsen=coarsen)
