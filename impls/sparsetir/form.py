"""The part of a config that shapes the format, apart from the schedule; CSR as it comes is one more format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.formats.hyb import HybLayout
from spmark.impls.kernels.direct_spmm import DIRECT, DirectPlan, is_direct
from spmark.impls.kernels.ell_buckets import EllBucketsPlan
from spmark.impls.kernels.hyb_convert import HybConverter
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target

Order = Literal["width", "row", "near"]
"""Order of rows: by the width of their bucket, widest first; as in A; or rows with common columns together."""


@dataclass(frozen=True)
class HybForm:
    """hyb(c, k), and the order of its rows."""

    c: int
    max_width: int
    """2^k."""
    order: Order
    thirds: bool = False
    """Whether widths of 24, 48, 96, ... stand between the powers of two."""
    tail_in_last: bool = False
    """Whether the rest of a folded row stays in the last bucket, as in the paper."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> tuple[HybForm, dict[str, Any]]:
        """Take a config apart: the format, and the schedule."""
        schedule = dict(config)
        names = [field.name for field in fields(cls) if field.name in schedule]
        return cls(**{"order": "width", **{name: schedule.pop(name) for name in names}}), schedule

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of a plan's config; a flag appears only where it is true, since older configs lack it."""
        return {key: value for key, value in asdict(self).items() if value is not False}


class Forms:
    """A matrix on a target in one form after the other; the last hyb and CSR are kept for further schedules.

    Parameters
    ----------
    problem : Problem
    target : Target
    """

    def __init__(self, problem: Problem, target: Target) -> None:
        self._problem, self._target = problem, target
        self._csr: list[DeviceArray] = []
        self._held: tuple[HybForm, HybLayout, list[DeviceArray]] | None = None

    @cached_property
    def converter(self) -> HybConverter:
        """Converts to hyb; made for the first plan over hyb."""
        return HybConverter(self._problem, self._target)

    def plan(self, config: Mapping[str, Any]) -> DevicePlan:
        """Build the plan of a config; `converter` has the cost of converting to hyb."""
        return self._direct(config) if is_direct(config) else self._hyb(config)

    def _direct(self, config: Mapping[str, Any]) -> DirectPlan:
        schedule = {name: value for name, value in config.items() if name not in DIRECT}
        plan = DirectPlan(self._problem, self._target, DIRECT, arrays=self._csr, **schedule)
        self._csr = plan.arrays
        return plan

    def _hyb(self, config: Mapping[str, Any]) -> EllBucketsPlan:
        form, schedule = HybForm.of(config)
        near = form.order == "near"
        if self._held is None or self._held[0] != form:
            self._held = None  # two formats of a large matrix might not fit
            self._held = form, *self.converter.convert(form.c, form.max_width, near, form.thirds, form.tail_in_last)
        _, layout, arrays = self._held
        return EllBucketsPlan(
            self._problem,
            self._target,
            layout,
            form.facts,
            arrays=arrays,
            by_row=form.order != "width",
            positions=self.converter.positions if near else None,
            **schedule,
        )
