"""STile's prediction for a GPU that may be absent: regression tracking follows how long the search takes."""

from __future__ import annotations

from spmark.impls.core.problem import Problem
from spmark.impls.stile.calibration import Calibration, published_a100
from spmark.impls.stile.search import search


def a100(problem: Problem) -> float:
    """Search for the A100 of the published calibration; give the seconds predicted for the chosen tiles."""
    calibration = Calibration.of(published_a100(), problem.op, problem.dtype)
    return search(problem.matrix, calibration, problem.width).predicted_ms * 1e-3
