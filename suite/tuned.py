"""What is known of the implementations for one matrix: measured here, or foreseen for a device that may be absent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from spmark.datasets.sweep.model import ImplementationSpec, MatrixSpec, Sweep
from spmark.impls.core.baseline import BASELINES, PAID_BACK
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.enums import SweepOp
from spmark.impls.core.errors import SpmarkError, UnsupportedError
from spmark.impls.core.interfaces import CHOOSING_PHASES, Config
from spmark.impls.core.problem import DType, Problem
from spmark.impls.core.stores import Forecast, Stores
from spmark.impls.formats.stores import stores_of
from spmark.impls.table import create, forecasters
from spmark.records.schema import Measurement, Status
from spmark.report.analysis.statistics import break_even, median_interval
from spmark.suite.measure import floor_s
from spmark.suite.plan.refusals import make, other_product

NOT_MEASURED = "not measured"


@dataclass(frozen=True, eq=False)
class Tuned:
    """What is known of one implementation; unknown numbers are NaN."""

    name: str
    """Of the implementation, or the label of its config."""
    about: str
    """How the numbers came about; begins with `NOT_MEASURED` where nothing ran."""
    time_us: float = math.nan
    """Median of a run, or what a cost model predicts."""
    low_us: float = math.nan
    high_us: float = math.nan
    """Ends of the median's 95 % interval; unknown where nothing, or too little, was measured."""
    padding: float = math.nan
    """Padded elements over non-zeros."""
    search_s: float = math.nan
    """Seconds from the matrix to its plan; where nothing is measured, those of the search and the conversion here."""
    break_even_runs: float = math.nan
    """Runs after which the search pays back against `PAID_BACK`."""
    config: Config | None = None
    """What was chosen; None where there is no plan."""
    stores: Stores | None = None
    """Known at once where nothing is measured; a record's stores are told by `recorded_stores`."""
    reason: str = ""
    """Why there is no plan."""

    @property
    def row(self) -> dict[str, Any]:
        """The columns of a ranking."""
        return {
            "implementation": self.name, "time_us": self.time_us, "time_us_low": self.low_us,
            "time_us_high": self.high_us, "padding": self.padding, "search_s": self.search_s,
            "break_even_runs": self.break_even_runs, "how": self.about,
        }  # fmt: skip


def ranked(found: Sequence[Tuned]) -> list[Tuned]:
    """Give those with a plan, the fastest first and of equals the one found sooner; without a time they stand last."""
    with_plan = [one for one in found if one.config is not None]
    return sorted(with_plan, key=lambda one: (math.isnan(one.time_us), one.time_us, one.search_s))


def least_us(problem: Problem, device: DeviceSpec) -> float:
    """Give the time that no run of a kernel undercuts: that of an empty one, or what the device's rates allow."""
    return max(device.launch_s, floor_s(problem, device)) * 1e6


def foresee(names: Sequence[str], problem: Problem, device: DeviceSpec, budget_s: float) -> Iterator[Tuned]:
    """Search and predict on the host, one implementation after the other.

    Parameters
    ----------
    names : sequence of str
        Those that cannot be foreseen get a reason. No time is below `least_us`.
    problem : Problem
    device : DeviceSpec
        The machine may lack it.
    budget_s : float
        Seconds after which no search begins; one that has begun ends.

    Raises
    ------
    SweepError
        There is no implementation of a name.
    """
    ends, fastest_us = perf_counter() + budget_s, least_us(problem, device)
    hows: dict[str, Any] = {name: make(name, {}) for name in names}
    for name, how in hows.items():
        started = perf_counter()
        try:
            if (reason := _ruled_out(how, problem, device)) is not None:
                raise UnsupportedError(reason)
            if started >= ends:
                raise UnsupportedError(f"not begun: the budget of {budget_s:g} s is spent")
            foreseen: Forecast = how.forecast(problem, device)
            stores = stores_of(how, problem, device, foreseen.config)
        except (SpmarkError, MemoryError) as error:
            yield Tuned(name, NOT_MEASURED, reason=str(error) or "memory ran out")
            continue
        predicted_us = math.nan if foreseen.predicted_s is None else foreseen.predicted_s * 1e6
        yield Tuned(
            name,
            f"{NOT_MEASURED}: {foreseen.by}{', which is less than any run takes' if predicted_us < fastest_us else ''}",
            fastest_us if predicted_us < fastest_us else predicted_us,
            padding=stores.padding,
            search_s=perf_counter() - started,
            config=foreseen.config,
            stores=stores,
        )


def _ruled_out(how: Any, problem: Problem, device: DeviceSpec) -> str | None:
    if isinstance(how, str):
        return how
    if not hasattr(how, "forecast"):
        return f"expected one out of {', '.join(forecasters())} where nothing is measured, found {how.name}"
    if problem.op not in how.ops:
        return other_product(how.ops, problem.op)
    reason: str | None = how.unsupported(problem, device)
    return reason


def roof(problem: Problem, device: DeviceSpec) -> Tuned:
    """Estimate the baseline on a GPU that may be absent by the roof of CSR: a launch, then bytes or rows out of L2.

    The time is at least `least_us`, and no more is known of a device without a frozen roof
    (`spmark.report.analysis.roof.frozen_times`).
    """
    import pandas as pd

    from spmark.report.analysis.roof import Bound, frozen_times

    facts = {"device": device.name, "compulsory_bytes": problem.compulsory_bytes(), "nnz": problem.matrix.nnz}
    case = pd.DataFrame([facts | {"width": problem.width, "width_in": 0, "dtype": str(problem.dtype)}])
    times = frozen_times(case).iloc[0]
    time_us = float(np.fmax(times[Bound.LAUNCH] + times.drop(Bound.LAUNCH).max(), least_us(problem, device)))
    return Tuned(BASELINES[device.kind.value], f"{NOT_MEASURED}: the roof of CSR, a launch and its bytes", time_us)


def sweep_of(  # noqa: PLR0917
    matrix: MatrixSpec, op: SweepOp, width: int, dtype: DType, names: Sequence[str], kind: DeviceKind, limit_s: float
) -> Sweep:
    """Give a sweep of one problem, the baseline and what building must pay back against among its implementations.

    Raises
    ------
    SweepError
        There is no implementation of a name.
    """
    for name in names:
        make(name, {})
    baseline, (paid_back, config) = BASELINES[kind.value], PAID_BACK[kind.value]
    specs = {name: ImplementationSpec(name=name, label=name) for name in (baseline, *names)}
    label = label_of(kind)
    specs.setdefault(label, ImplementationSpec(name=paid_back, config=dict(config), label=label))
    return Sweep(
        schema=1,
        name="tune",
        ops=(op,),
        matrices=(matrix,),
        widths=(width,),
        dtypes=(dtype,),
        implementations=tuple(specs.values()),
        baseline={kind: baseline},
        time_limit_s=limit_s,
    )


def label_of(kind: DeviceKind) -> str:
    """Give the label of what building must pay back against."""
    name, config = PAID_BACK[kind.value]
    words = [key if value is True else f"{key}={value}" for key, value in config.items()]
    return " ".join([name, *words])


def measured(records: Sequence[Measurement], device: DeviceSpec) -> list[Tuned]:
    """Give what records of one problem say, in their order.

    Parameters
    ----------
    records : sequence of Measurement
        With the one that building must pay back against, or without: break-even counts are then unknown.
    device : DeviceSpec
    """
    timed = {one.spec.label: one for one in records if one.status is Status.OK and one.samples_us}
    against = timed.get(label_of(device.kind)) if device.kind.value in PAID_BACK else None
    return [_measured(one, device, against) for one in records]


def _measured(record: Measurement, device: DeviceSpec, against: Measurement | None) -> Tuned:
    if record.status is not Status.OK:
        return Tuned(record.spec.label, f"{record.status} on {device.name}", reason=record.reason or str(record.status))
    time = median_interval(record.samples_us)
    nnz = record.problem.nnz if record.problem else 0
    runs = math.nan
    if against is not None:
        runs = break_even(_choosing_s(record), time.value, _choosing_s(against), float(np.median(against.samples_us)))
    padding = record.stored / nnz - 1 if nnz else 0.0
    about = f"measured on {device.name}" if record.samples_us else f"checked on {device.name}, which gives no times"
    return Tuned(
        record.spec.label, about, time.value, time.low, time.high, padding, _choosing_s(record), runs, record.config
    )


def _choosing_s(record: Measurement) -> float:
    return sum(record.phases_s.get(name, 0.0) for name in CHOOSING_PHASES)


def recorded_stores(record: Measurement, problem: Problem, device: DeviceSpec) -> Stores:
    """Convert as the recorded plan did, on the host, and tell its stores.

    Raises
    ------
    SpmarkError
        Today's code has no such plan, or its class does not say how it stores A; says which.
    """
    how = create(record.spec.implementation, record.spec.config)
    if not hasattr(how, "stored_as") and record.stored > problem.matrix.nnz:
        raise UnsupportedError(f"{how.name}: expected stored_as, since the plan pads, found none")
    return stores_of(how, problem, device, record.config)
