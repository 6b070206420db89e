"""Searches for a GPU that may be absent, by the names that regression tracking asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.stile.calibration import Calibration, published_a100
from spmark.impls.stile.search import search


def _tiles_s(problem: Problem) -> float:
    calibration = Calibration.of(published_a100(), problem.op, problem.dtype)
    return search(problem.matrix, calibration, problem.width).predicted_ms * 1e-3


def _composed_s(how: LiteForm, problem: Problem) -> float | None:
    if problem.op is not Op.SPMM:
        raise UnsupportedError(f"expected spmm, which is all that CELL computes, found {problem.op}")
    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))
    composition = how.compose(problem, device)
    return None if composition is None else composition.copy_s(problem, device)


SEARCHES: Mapping[str, Callable[[Problem], float | None]] = {
    "stile_a100": _tiles_s,
    "liteform_build_h200": partial(_composed_s, LiteForm()),
    "liteform_h200": partial(_composed_s, LiteForm(format=StoredAs.CELL)),
}
"""Each gives the predicted seconds of what it chooses: tiles for the A100 of STile's published calibration; what a
LiteForm build composes for an H200, None where the build takes another format than CELL; and CELL in any case."""
