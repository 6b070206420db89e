"""What LiteForm composes for a GPU that need not be there: regression tracking follows its seconds and its cost."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.dense import Dense
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.runtime.device import shipped_calibration

_BUCKETS_ALONE = LiteForm(format=StoredAs.CELL, dense=Dense.NEVER)


def buckets_h200(problem: Problem) -> float | None:
    """Compose CELL for an H200, whatever else would be chosen; give the seconds that its cost stands for."""
    return _predicted_s(_BUCKETS_ALONE, problem)


def build_h200(problem: Problem) -> float | None:
    """Choose all that a build for an H200 chooses; give the seconds, or None where that is another format."""
    return _predicted_s(LiteForm(), problem)


def _predicted_s(how: LiteForm, problem: Problem) -> float | None:
    if problem.op is not Op.SPMM:
        raise UnsupportedError(f"expected spmm, which is all that CELL computes, found {problem.op}")
    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))
    found = how.compose(problem, device)
    if found is None:
        return None
    # The cost counts loads and stores of elements; at the rate of a copy they take so long.
    return found.widths.cost * problem.dtype.itemsize / device.copy_bytes_per_s
