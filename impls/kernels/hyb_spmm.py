"""SpMM over hyb(c, k): conversion on the target, and the family of format and schedule.

The matrix is uploaded once, for any number of conversions. The host lays out rows, in time of the number of ELL rows; a
kernel copies the elements. The result is that of `spmark.impls.formats.hyb.HybFormat.from_csr`, bit for bit.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.2.1, for the format.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import Built, Config, DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.hyb import HybLayout, lay_out, partition_columns
from spmark.impls.formats.nearness import near_order
from spmark.impls.kernels.ell_buckets import EllBucketsPlan, block_ranges, ell_axes, ell_instance
from spmark.impls.kernels.family import Axes, Build, KernelFamily, OneFormat
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, Instance, KernelTemplate

_SPAN = 4096
"""Elements that a thread block fills; one block fills a longer ELL row all the same."""
FILL_ELL_BUCKETS = KernelTemplate(
    Path(__file__).parent / "hyb_convert.cu", "fill_ell_buckets", {"T": ELEMENTS, "threads": (256,)}
)


def filling_instance(dtype: DType) -> Instance:
    """Give the kernel that copies elements into ELL rows."""
    return FILL_ELL_BUCKETS.instance(T=C_TYPES[dtype], threads=FILL_ELL_BUCKETS.space["threads"][0])


class HybConverter:
    """A matrix on a target, ready for conversions.

    Parameters
    ----------
    problem : Problem
        Gives the matrix and the dtype of the values.
    target : Target

    Attributes
    ----------
    target : Target
    phases_s : dict
        Seconds spent on the kernel (``compile``), on CSR (``upload``), and on filling all layouts
        so far (``convert``).

    Raises
    ------
    CompileError
        The kernel does not compile.
    """

    def __init__(self, problem: Problem, target: Target) -> None:
        self._matrix, self.target, self._dtype = problem.matrix, target, problem.dtype
        self._accounts = Built()
        self.phases_s = self._accounts.phases_s
        with self._accounts.phase("compile"):
            (self._kernel,) = target.load([filling_instance(problem.dtype)])
        with self._accounts.phase("upload"):
            self._csr = [target.upload(array) for array in (problem.matrix.indices, problem.values)]

    def fill(self, layout: HybLayout) -> list[DeviceArray]:
        """Fill any layout of the matrix with elements, also a layout whose partitions have widths of their own.

        Returns
        -------
        list of device arrays
            Indices (stored,) int32 and values (stored,) of the problem's dtype.
        """
        with self._accounts.phase("convert"):
            ranges = block_ranges(layout, 1, _SPAN)
            places = [self.target.upload(array) for array in (ranges, layout.starts, layout.lengths)]
            arrays = [self.target.empty((layout.stored,), kind) for kind in (np.int32, self._dtype.numpy)]
            self._kernel.launch((ranges.shape[0], 1, 1), (*places, *self._csr, *arrays))
            self.target.synchronize()
        return arrays


FORM = ("c", "max_width", "order", "thirds", "tail_in_last")
"""Tunables of the format: column partitions; 2^k; one of `ORDERS`; whether widths of 24, 48, 96, ... stand between the
powers of two; and whether the rest of a folded row stays in the last bucket, as in the paper."""
ORDERS = ("width", "near", "row")
"""Orders of rows: by the width of their bucket, widest first; rows with common columns together; or as in A."""
PARTITIONS = (1, 2, 4, 8, 16)
"""c of the paper's search."""
MAX_WIDTHS = (32, 8, 16, 64, 128, 256, 512, 1024, 2048)
"""Widths 2^k of the widest bucket, first the one that is taken without a search; the width of the paper's rule
k = ceil(log2(nnz / I)) is among them in any case."""
_KEPT, _KEPT_LARGE, _SMALL = 16, 4, 1 << 24
"""Layouts and orders of rows that a search keeps, those that it keeps of a matrix of more than so many non-zeros, and
so many: a search comes back to each of some ten widths, and a layout takes 12 bytes for each ELL row."""
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


def _opened(problem: Problem, target: Target) -> Build:
    """Build plans that share the matrix on the target, the last format, the last layouts and the order of rows."""
    converter, matrix = HybConverter(problem, target), problem.matrix
    made_s = dict(converter.phases_s)
    kept: dict[Hashable, tuple[Any, float]] = {}
    most = _KEPT if matrix.nnz <= _SMALL else _KEPT_LARGE

    def once(make: Callable[[], Any], *key: Hashable) -> tuple[Any, float]:
        """Make something, or give what was made by this key before, and the seconds that it took then."""
        if key in kept:
            kept[key] = kept.pop(key)  # what was used least recently stands first
            return kept[key]
        account = Built()
        with account.phase("convert"):
            made = make()
        kept[key] = made, account.phases_s["convert"]
        if len(kept) > most:
            del kept[next(iter(kept))]
        return made, 0.0

    def convert(form: Config) -> tuple[HybLayout, list[DeviceArray], Any, float]:
        c, near, positions, ordering_s = form["c"], form.get("order") == "near", None, 0.0
        pieces, cutting_s = once(lambda: partition_columns(matrix, c), "pieces", c)
        if near:
            positions, finding_s = once(lambda: near_order(matrix).positions, "positions")
            pieces, sorting_s = once(lambda: pieces.in_order(positions), "pieces", c, near)
            ordering_s = finding_s + sorting_s
        how = [form["max_width"]] * c, form.get("tail_in_last", False), form.get("thirds", False)
        layout, placing_s = once(lambda: lay_out(pieces, *how), "layout", near, str(how))
        return layout, converter.fill(layout), positions, cutting_s + ordering_s + placing_s

    def build(held: Any, form: Config, schedule: Config, _: Sequence[DeviceArray]) -> DevicePlan:
        layout, arrays, positions, reused_s = held
        order = form.get("order", "width")
        facts = {name: value for name, value in {**form, "order": order}.items() if value is not False}
        in_order = {"by_row": order != "width", "positions": positions}
        plan = EllBucketsPlan(problem, target, layout, facts, arrays, **in_order, **schedule)
        plan.charge({**made_s, "convert": reused_s})
        return plan

    return OneFormat(FORM, convert, build)


HYB_SPMM = KernelFamily(
    mark="max_width",
    axes=_axes,
    opened=_opened,
    kernel=ell_instance,
)
