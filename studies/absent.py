"""Searches for a GPU that may be absent, by the names that regression tracking asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.stile.calibration import Calibration, published_a100
from spmark.impls.stile.search import search


def stile_a100(problem: Problem) -> float:
    """Search for the A100 of STile's published calibration; give the seconds predicted for the chosen tiles."""
    calibration = Calibration.of(published_a100(), problem.op, problem.dtype)
    return search(problem.matrix, calibration, problem.width).predicted_ms * 1e-3


def liteform_h200(problem: Problem) -> float | None:
    """Compose CELL for an H200, even where a build takes another format; give the seconds that its cost stands for."""
    return _composed_s(LiteForm(format=StoredAs.CELL), problem)


def liteform_build_h200(problem: Problem) -> float | None:
    """Compose as a build for an H200 does; give the seconds, or None where the build takes another format than CELL."""
    return _composed_s(LiteForm(), problem)


def _composed_s(how: LiteForm, problem: Problem) -> float | None:
    if problem.op is not Op.SPMM:
        raise UnsupportedError(f"expected spmm, which is all that CELL computes, found {problem.op}")
    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))
    composition = how.compose(problem, device)
    return None if composition is None else composition.copy_s(problem, device)


SEARCHES: Mapping[str, Callable[[Problem], float | None]] = {
    one.__name__: one for one in (stile_a100, liteform_build_h200, liteform_h200)
}
"""Each gives the predicted seconds of the chosen config, or None."""
