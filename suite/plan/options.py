"""What may be asked of a run: one model from the command line to the process that measures."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from spmark.impls.core.untrusted import Frozen
from spmark.records.schema import Flush, Status


class Options(Frozen):
    """Which cases of a sweep to run, and what to time."""

    only: tuple[str, ...] = ()
    """Filters of cases, as `spmark.suite.plan.plan.select` takes them."""
    retry: tuple[Status, ...] = ()
    """Endings of recorded cases that are run once more."""
    limit: Annotated[int, Field(ge=0)] | None = None
    """Most cases to run."""
    warm: bool = False
    """Also take samples without flushing caches."""
    sparse_library: str = ""
    """Version or path of the cuSPARSE that measuring processes load; records of another version then do not count."""
    flush: Flush = Flush.WRITE
    """How caches are emptied before each sample of a plan and its baseline."""
