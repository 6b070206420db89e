"""LiteForm: CELL composed by two small models and a cost model, or a fixed format where CELL is not expected to pay.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm: Lightweight and Automatic Format Composition for Sparse Matrix-Matrix
Multiplication on GPUs", HPDC 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, check_choices
from spmark.impls.core.interfaces import Built, Config, Plan
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.stores import Forecast
from spmark.impls.core.untrusted import reading
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.hyb import HybLayout, cell_layout
from spmark.impls.formats.nearness import RowOrder, distinct_share, near_order
from spmark.impls.kernels.block_spmm import SPMM_BLOCKS, BlockSpmmPlan, vector_of
from spmark.impls.kernels.csr_spmm import SPMM_CSR, csr_plan
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS, EllBucketsPlan
from spmark.impls.kernels.hyb_spmm import FILL_ELL_BUCKETS, HybConverter
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS, ZERO_ROWS
from spmark.impls.liteform.compose import (
    BLOCK,
    BucketOrder,
    Choice,
    Composition,
    StoredAs,
    choose,
    expanded,
    fixed_form,
)
from spmark.impls.liteform.cost import BucketCounts, capped, costs, count, power_of, weighed
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.predictor import SHIPPED, find
from spmark.impls.liteform.schedule import CellSchedule, ScheduleTable, rule, schedule_for, table_for
from spmark.impls.liteform.search import Method, Widths, search
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate

MOST_PARTITIONS = 1024
"""Most column partitions of CELL."""


class Cost(StrEnum):
    """Where the cost of a bucket width comes from."""

    MEASURED = "measured"
    PAPER = "paper"


@dataclass(frozen=True)
class LiteForm:
    """SpMM over CELL, CSR or BSR as the models say."""

    name: ClassVar[str] = "liteform"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (
        SPMM_ELL_BUCKETS, FILL_ELL_BUCKETS, ROUND_SHARED_ROWS, ZERO_ROWS, SPMM_CSR, SPMM_BLOCKS,
    )  # fmt: skip
    retired: ClassVar[Mapping[str, Any]] = {"dense": "never", "alone": 0, "bound": False, "block": 0}
    cost_models: ClassVar[Mapping[str, str]] = {"cost": "spmark.impls.liteform.cost_models:BucketCost"}

    format: str = StoredAs.AUTO
    """``cell``, ``csr`` (GE-SpMM's kernel) or ``bsr``; ``auto`` asks the models."""
    partitions: int = 0
    """Column partitions of CELL; 0 asks the models."""
    max_width: int = 0
    """Width of the widest bucket of every partition whose rows are that long; 0 searches by cost."""
    search: str = Method.LINEAR
    """``linear`` or ``binary`` (algorithm 3)."""
    cost: str = Cost.MEASURED
    """Cost of bucket widths: ``measured`` by this GPU's weights if it has any, ``paper`` by the paper's equations."""
    order: str = BucketOrder.AUTO
    """``given`` keeps A's order of rows, ``gathered`` puts rows that share columns together, ``auto`` chooses."""
    tail_in_last: bool = False
    """Leave the rest of a folded row in the widest bucket, as the paper and its cost do; the measured cost counts rests
    where they fit."""
    thirds: bool | None = None
    """Put buckets of 24, 48, 96, ... between the paper's powers of two, which the measured cost counts. By default the
    GPU's table says whether."""
    model: str = SHIPPED
    """A model that ships, or the path of one that ``spmark study train liteform`` wrote."""

    def __post_init__(self) -> None:
        check_choices(self, format=StoredAs, search=Method, cost=Cost, order=BucketOrder)
        if not 0 <= self.partitions <= MOST_PARTITIONS:
            raise ValueError(f"expected partitions in [1, {MOST_PARTITIONS}], or 0 to predict, found {self.partitions}")
        if self.max_width:
            power_of(self.max_width)

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> Csr | BsrFormat | HybLayout:
        """Lay out what a config names; the order of rows changes no store."""
        form = config["format"]
        if form in (StoredAs.CSR, "direct"):  # records of before may have CSR by the kernel of `direct`
            return problem.matrix
        if form == StoredAs.BSR:
            return BsrFormat.from_csr(problem.matrix, BLOCK, BLOCK)
        if {"reads", "dense"} & set(config):
            raise BuildError(
                f"{self.name}: expected buckets, found a config of an earlier version, with rows in dense pieces: "
                "measure the case again"
            )
        widths = config["max_widths"]
        with reading(self.name, "widths of buckets such as 32x5,16", BuildError):
            max_widths = expanded(widths, MOST_PARTITIONS)
        return cell_layout(problem.matrix, max_widths, self.tail_in_last, thirds=config.get("thirds", False))

    def forecast(self, problem: Problem, device: DeviceSpec) -> Forecast:
        """Ask the models, and the cost of buckets where buckets are chosen."""
        choice = self.choice(problem)
        config: Config = {"format": str(choice.form)}
        if choice.form is not StoredAs.CELL:
            return Forecast(config, "LiteForm's models and its table of the GPU")
        composition = self.composed(problem, device, choice, Built())
        by = "LiteForm's models and its cost of buckets, as the time of a copy of as many bytes"
        seconds = composition.widths.cost * problem.dtype.itemsize / device.copy_bytes_per_s
        return Forecast(config | composition.facts, by, seconds)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid, and blocks where the matrix unit does not compute."""
        if self.format == StoredAs.BSR and not problem.dtype.narrow:
            return f"expected 16-bit floats for bsr, which the matrix unit computes, found {problem.dtype}"
        schedule = rule(problem.width, problem.dtype, 1)
        return too_wide(problem.width, schedule.vector * schedule.lanes)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Compose, convert and upload; nothing is run on the device."""
        own = Built()
        with own.phase("compile"):
            # What a process pays once: the files of the model and the table.
            predictor, target = find(self.model), open_target(device)
            table_for(device.name)
        with own.phase("features"):
            features = Features.of(problem.matrix)
        with own.phase("select"):
            choice = self.choice(problem, features)
        facts: dict[str, Any] = {"format": choice.form.value, "model": predictor.card.name}
        if choice.fallback:
            facts["fallback"] = choice.fallback
        if choice.form is StoredAs.CELL:
            plan: DevicePlan = self._cell(problem, target, choice, facts, own)
        elif choice.form is StoredAs.BSR:
            with own.phase("convert"):
                blocks = BsrFormat.from_csr(problem.matrix, BLOCK, BLOCK)
            depth = BLOCK if vector_of(problem.width) > 1 else BLOCK // 2
            plan = BlockSpmmPlan(problem, target, blocks, {**facts, "block": BLOCK}, tile=64, depth=depth)
        else:
            plan = csr_plan(problem, target, facts)
        plan.charge(own.phases_s)
        return plan

    def choice(self, problem: Problem, features: Features | None = None) -> Choice:
        """Choose the format, and the partitions of CELL, as `build` does."""
        features = features or Features.of(problem.matrix)
        choice = choose(features, problem.width, find(self.model), StoredAs(self.format), self.partitions)
        if choice.form is StoredAs.CSR and self.format == StoredAs.AUTO:
            return replace(choice, form=fixed_form(problem.matrix, problem.dtype))
        return choice

    def composed(self, problem: Problem, device: DeviceSpec, choice: Choice, own: Built) -> Composition:
        """Choose the order of rows and the widths of buckets, for a GPU that may be absent; ``own`` has the seconds."""
        table = table_for(device.name)
        with own.phase("convert"):
            order = self.ordered(problem, table)
        with own.phase("search"):
            counts, of_cap = self.costs_of(problem, table, order, choice.partitions)
            widths = search(of_cap, counts.widest, Method(self.search))
            if self.max_width:
                power = power_of(self.max_width)
                widths = Widths(counts.widest.clip(max=power), capped(of_cap, counts, power), choice.partitions)
        return Composition(order, counts, of_cap, widths, self.thirds_of(table))

    def costs_of(
        self, problem: Problem, table: ScheduleTable | None, order: RowOrder | None, partitions: int
    ) -> tuple[BucketCounts, NDArray[np.float64]]:
        """Count a matrix in partitions, and give the cost of each under every cap: the paper's, or a GPU's."""
        weights = table.weights_for(order is not None) if table and self.cost == Cost.MEASURED else None
        counts = count(problem.matrix, partitions, weights is None, self.thirds_of(table))
        return counts, costs(counts, problem.width) if weights is None else weighed(counts, problem.width, weights)

    def _cell(
        self, problem: Problem, target: Target, choice: Choice, facts: dict[str, Any], own: Built
    ) -> EllBucketsPlan:
        converter = HybConverter(problem, target)
        buckets = self.composed(problem, target.spec, choice, own)
        order, told = buckets.order, facts | buckets.facts | {"search": self.search}
        with own.phase("convert"):
            layout = cell_layout(problem.matrix, buckets.max_widths, self.tail_in_last, order, buckets.thirds)
        arrays = converter.fill(layout)
        with own.phase("search"):
            sizes = {"nnz": problem.matrix.nnz, "max_width": told["max_width"], "gathered": order is not None}
            schedule = schedule_for(target.spec.name, problem.width, problem.dtype, **sizes)
        arguments = scheduled(schedule, order, choice.partitions)
        plan = EllBucketsPlan(problem, target, layout, told, arrays=arrays, **arguments)
        plan.charge(converter.phases_s)
        plan.search = buckets.record
        return plan

    def thirds_of(self, table: ScheduleTable | None) -> bool:
        """Tell whether buckets have widths between the powers of two."""
        if self.thirds is not None:
            return self.thirds
        return table is not None and table.thirds and self.cost == Cost.MEASURED

    def ordered(self, problem: Problem, table: ScheduleTable | None) -> RowOrder | None:
        """Give the order of rows that a plan takes; None for A's own, which a table may expect to be as fast."""
        matrix = problem.matrix
        if self.order == BucketOrder.GATHERED:
            return near_order(matrix)
        rule = table.gathering if table and self.order == BucketOrder.AUTO else None
        if rule is None or not rule.asks(matrix.nnz, problem.width, problem.dtype):
            return None
        order = near_order(matrix)
        return order if distinct_share(matrix, order) <= rule.most_share * distinct_share(matrix) else None


def scheduled(schedule: CellSchedule, order: RowOrder | None, partitions: int) -> dict[str, Any]:
    """Give the arguments of `EllBucketsPlan`: blocks of gathered rows in one partition start in the order of the rows.

    Several partitions are computed one after the other, so that their rows of B stay in the cache.
    """
    arguments = asdict(schedule)
    if order is not None and partitions == 1:
        arguments |= {"by_row": True, "positions": order.positions}
    return arguments
