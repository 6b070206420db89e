"""What may be asked of a run: one model from the command line to the process that measures."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from spmark.impls.core.frozen import Frozen
from spmark.impls.core.record import Flush, Status

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Options(Frozen):
    """How to run a sweep, and what to time."""

    sweep: str = ""
    """The sweep's file, or the name of a packaged one; empty where Python hands over the cases."""
    device: str = "auto"
    """As `spmark.impls.runtime.device.find` takes it."""
    only: tuple[str, ...] = ()
    """Filters of cases, as `spmark.suite.plan.filters.select` takes them."""
    retry: tuple[Status, ...] = ()
    """Endings of recorded cases that are run once more."""
    overrides: tuple[str, ...] = ()
    """``key=value`` for keys of the sweep."""
    limit: Annotated[int, Field(ge=0)] | None = None
    """Most cases to run."""
    warm: bool = False
    """Also take samples without flushing caches."""
    flush: Flush = Flush.WRITE
    """How caches are emptied before each sample of a plan and its baseline."""
    graph_below_us: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 20.0
    """Kernels faster than this are also replayed as a graph."""
    half_width: _Positive | None = None
    """Relative half-width of the median's interval to reach, instead of the device kind's own."""
    max_seconds: _Positive | None = None
    """Time cap of a case's samples, instead of the device kind's own."""
