"""The estimate's rates fitted anew to measured candidates, and what the estimate's choice costs before and after.

`spmark.impls.lo_spmm.estimate.estimate` prices the work that rows of labels keep. Each of its nine rates gets a factor,
and so does the exponent that adds the parts up.

A launch takes a time that all candidates of a problem share, and that the estimate leaves out. The fit has an unknown
for this time, or the rates would have to make it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.lo_spmm.estimate import CYCLES_PER_S, NEXT_GRID, TOGETHER, Work, estimate
from spmark.studies.lo_spmm.labels import TileLabels

NAMES: Final = ("issue", "loads", "data", "code", "latency", "chain", "memory", "next grid", "sum bytes", "together")
"""What is fitted: rates of the parts, the two rates of sums, and the exponent."""
_SIDE_BY_SIDE = 7
_LAUNCH_CYCLES = 5000.0
"""Start of the fit for the cycles of a launch."""
_FOLDS = 5
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Priced:
    """The timed candidates of one problem."""

    parts: Array
    """(n, 9) cycles by the shipped rates: `NAMES` without the exponent."""
    cycles: Array
    """(n,) medians of the measured times."""
    shape: tuple[int, int, int]
    """I, K and non-zeros: layers that share these are measured at the same candidates, and folds keep them together."""


def priced(rows: Sequence[TileLabels], device: DeviceSpec) -> list[Priced]:
    """Price the candidates of each row that keeps their work; rows without a time are left out.

    Parameters
    ----------
    rows : sequence of TileLabels
    device : DeviceSpec
        The GPU of the rows, with measured bandwidth.
    """
    problems = []
    for row in rows:
        tried = [one for one in row.tried if one.samples_us and one.work]
        if tried:
            costs = np.array([astuple(estimate(Work(*one.work), device)) for one in tried])
            grids = np.where(costs[:, -1] > 0, NEXT_GRID, 0.0)
            parts = np.column_stack([costs[:, :-1], grids, costs[:, -1] - grids])
            cycles = np.array([np.median(one.samples_us) for one in tried]) * 1e-6 * CYCLES_PER_S
            problems.append(Priced(parts, cycles, (row.num_rows, row.num_cols, row.nnz)))
    return problems


def estimated(parts: Array, factors: Array) -> Array:
    """Give the estimate's cycles, (n,), with ``factors`` times the shipped rates, (10,) in the order of `NAMES`."""
    scaled, exponent = parts * factors[:-1], TOGETHER * factors[-1]
    together = (scaled[:, :_SIDE_BY_SIDE] ** exponent).sum(1) ** (1 / exponent)
    result: Array = together + scaled[:, _SIDE_BY_SIDE:].sum(1)
    return result


def fitted(problems: Sequence[Priced]) -> Array:
    """Fit the factors by least squares on logarithms of times.

    Each problem counts once, however many candidates it has. A rate that is off by a factor of e counts as much as a
    problem that is: what the problems do not tell stays near the shipped rate.

    Returns
    -------
    (10,) float64, in the order of `NAMES`.
    """
    from scipy.optimize import least_squares

    parts = np.concatenate([one.parts for one in problems])
    logs = np.log(np.concatenate([one.cycles for one in problems]))
    weights = np.concatenate([np.full(one.cycles.size, one.cycles.size**-0.5) for one in problems])

    def residuals(unknowns: Array) -> Array:
        factors, launch = np.exp(unknowns[:-1]), _LAUNCH_CYCLES * np.exp(unknowns[-1])
        return np.append((logs - np.log(estimated(parts, factors) + launch)) * weights, unknowns[:-1])

    found: Array = np.exp(least_squares(residuals, np.zeros(len(NAMES) + 1), x_scale="jac").x[:-1])
    return found


def regret(problem: Priced, factors: Array) -> float:
    """Give the logarithm of the time of the candidate with the least estimate over the least time."""
    return float(np.log(problem.cycles[np.argmin(estimated(problem.parts, factors))] / problem.cycles.min()))


def held_out(problems: Sequence[Priced]) -> tuple[float, float]:
    """Judge the shipped rates and rates that are fitted to four fifths of the shapes, on the shapes left out in turn.

    Returns
    -------
    shipped, refitted : float
        Time of the estimate's choice over the least time, minus 1; the geometric mean over the problems.

    Raises
    ------
    DatasetError
        There are fewer shapes than folds.
    """
    shapes = sorted({one.shape for one in problems})
    if len(shapes) < _FOLDS:
        raise DatasetError(f"expected problems of at least {_FOLDS} shapes, found {len(shapes)}; measure more labels")
    shipped = [regret(one, np.ones(len(NAMES))) for one in problems]
    refitted = []
    for fold in range(_FOLDS):
        left_out = set(shapes[fold::_FOLDS])
        factors = fitted([one for one in problems if one.shape not in left_out])
        refitted += [regret(one, factors) for one in problems if one.shape in left_out]
    return float(np.expm1(np.mean(shipped))), float(np.expm1(np.mean(refitted)))
