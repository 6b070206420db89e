"""LiteForm's composition for a GPU that the machine may lack; regression tracking follows its seconds and its cost."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.composition import Composition
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.runtime.device import shipped_calibration

_BUCKETS_ALONE = LiteForm(format=StoredAs.CELL)


def buckets_h200(problem: Problem) -> float | None:
    """Compose CELL for an H200, even where a build takes another format; give the seconds that its cost stands for."""
    return _predicted_s(_BUCKETS_ALONE, problem)


def build_h200(problem: Problem) -> float | None:
    """Compose as a build for an H200 does; give the seconds, or None where the build takes another format than CELL."""
    return _predicted_s(LiteForm(), problem)


def _predicted_s(how: LiteForm, problem: Problem) -> float | None:
    if problem.op is not Op.SPMM:
        raise UnsupportedError(f"expected spmm, which is all that CELL computes, found {problem.op}")
    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))
    composition = how.compose(problem, device)
    if composition is None:
        return None
    return seconds_of(composition, problem, device)


def seconds_of(composition: Composition, problem: Problem, device: DeviceSpec) -> float:
    """Give the time of a copy of as many bytes as the cost counts loads and stores of elements."""
    return composition.widths.cost * problem.dtype.itemsize / device.copy_bytes_per_s
