"""How far a result may be from the float64 reference, and the one judgement of whether a result is wrong."""

from __future__ import annotations

import numpy as np

from spmark.impls.core.relational import AnyProblem

_UNIT_ROUNDOFF = 2.0**-24


def tolerance(problem: AnyProblem, half_sums: bool = False) -> float:
    """Give the largest `Reference.max_error` that float32 accumulation explains.

    Parameters
    ----------
    problem : Problem or RelationalProblem
        Its longest reduction counts: n is the longest row for SpMM, J for SDDMM, and for RGMS the longest row of all
        relations times ``width_in``.
    half_sums : bool
        The plan declares that it rounds partial sums to the dtype (`Plan.half_sums`): one such rounding is allowed for
        every 32 terms, growing like its square root.

    Notes
    -----
    A sum of n rounded terms in any order errs like sqrt(n) u times the sum of magnitudes, and like a constant times u
    where the terms' signs are random, as those of random operands are (Higham and Mary, SIAM J. Sci. Comput. 2020).
    Allowed is 8 sqrt(n) u up to n = 64 and 64 u beyond: a term left out of 10,000, or inputs rounded to TF32, are far
    outside.
    """
    allowed = 8 * min(float(np.sqrt(problem.terms)), 8.0) * _UNIT_ROUNDOFF
    if half_sums and problem.dtype.narrow:
        allowed += 2 * 2.0**-problem.dtype.digits * float(np.sqrt(1 + (problem.terms - problem.scaled) / 32))
    return allowed


def why_wrong(problem: AnyProblem, error: float, unwritten: int, half_sums: bool = False) -> str | None:
    """Say why a result is wrong, or None where it is right.

    Parameters
    ----------
    problem : Problem or RelationalProblem
    error : float
        From `Reference.max_error`; NaN counts as wrong.
    unwritten : int
        Elements that hold NaN, with which `out` was filled before the run.
    half_sums : bool
        As in `tolerance`.
    """
    if unwritten:
        left = (
            f"left {unwritten:,} elements of `out` that it did not write, or wrote NaN (they held NaN before the run)"
        )
        return f"expected a complete result, found that the run {left}"
    allowed = tolerance(problem, half_sums)
    if not error <= allowed:
        return f"expected an error of at most {allowed:.3g}, found a largest relative error of {error:.3g}"
    return None
