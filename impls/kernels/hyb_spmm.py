"""SpMM over hyb(c, k): the part of a config that shapes the format, and the family of format and schedule.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.2.1, for the format.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.formats.hyb import HybLayout
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS, EllBucketsPlan, ell_axes, ell_instance
from spmark.impls.kernels.family import Axes, Build, KernelFamily, OneFormat
from spmark.impls.kernels.hyb_convert import FILL_ELL_BUCKETS, HybConverter
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.kernels.zeroing import ZERO_ROWS
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target

FORM = ("c", "max_width", "order", "thirds", "tail_in_last")
"""Tunables of the format: column partitions; 2^k; one of `ORDERS`; whether widths of 24, 48, 96, ... stand between the
powers of two; and whether the rest of a folded row stays in the last bucket, as in the paper."""
ORDERS = ("width", "near", "row")
"""Orders of rows: by the width of their bucket, widest first; rows with common columns together; or as in A."""
PARTITIONS = (1, 2, 4, 8, 16)
"""c of the paper's search."""
MAX_WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Widths 2^k of the widest bucket; the width of the paper's rule k = ceil(log2(nnz / I)) is among them in any case."""
MOST_K = 20
"""Greatest k of hyb(c, k): longer rows are folded, and kernels mark their ranges with numbers above such widths."""


def rule_width(problem: Problem) -> int:
    """Give 2^k by the paper's rule, k = ceil(log2(nnz / I)), at most 2^`MOST_K`."""
    mean = problem.matrix.nnz / problem.matrix.num_rows
    return 1 << min(int(np.ceil(np.log2(max(mean, 1.0)))), MOST_K)


def _axes(problem: Problem, pinned: Config) -> Axes:
    return {
        "c": PARTITIONS,
        "max_width": tuple(dict.fromkeys((*MAX_WIDTHS, rule_width(problem)))),
        "order": ORDERS,
        "thirds": ({}, {"thirds": True}),
        **ell_axes(problem),
    }


def _default(problem: Problem, pinned: Config) -> Config:
    axes = ell_axes(problem)
    return {"c": 1, "max_width": 32, **axes["tile"][0], "work": axes["work"][0], **pinned}


def _opened(problem: Problem, target: Target) -> Build:
    """Build plans that share the matrix on the target, and the last format."""
    converter = HybConverter(problem, target)
    made_s = dict(converter.phases_s)

    def convert(form: Config) -> tuple[HybLayout, list[DeviceArray], float]:
        return *converter.convert(**form), converter.reused_s

    def build(
        held: tuple[HybLayout, list[DeviceArray], float], form: Config, schedule: Config, _: Sequence[DeviceArray]
    ) -> DevicePlan:
        layout, arrays, reused_s = held
        order = form.get("order", "width")
        facts = {name: value for name, value in {**form, "order": order}.items() if value is not False}
        positions = converter.positions if order == "near" else None
        in_order = {"by_row": order != "width", "positions": positions}
        plan = EllBucketsPlan(problem, target, layout, facts, arrays, **in_order, **schedule)
        plan.charge({**made_s, "convert": reused_s})
        return plan

    return OneFormat(FORM, convert, build)


HYB_SPMM = KernelFamily(
    mark="max_width",
    templates=(SPMM_ELL_BUCKETS, ROUND_SHARED_ROWS, ZERO_ROWS, FILL_ELL_BUCKETS),
    axes=_axes,
    default=_default,
    opened=_opened,
    kernel=ell_instance,
)
