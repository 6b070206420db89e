"""The search of SDDMM over runs of non-zeros, which several systems have beside a space of their own."""

from __future__ import annotations

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.sddmm_runs import is_offered, run_tiles
from spmark.impls.tuning.strategies import Times, along, exhaustive

RUNS = (2, 4, 8, 16, 32)
"""Non-zeros of a group."""
_MANY = 100_000
"""Non-zeros above which there are groups enough for longer runs from the start."""


def search_runs(problem: Problem, race: Times, fixed: Config) -> None:
    """Time the tiles of a width; of the best one the run, from the middle to both sides; and then searched rows.

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs ``vector, vectors, lanes, batch, parts, early, searched, run`` besides ``fixed``.
    fixed : dict
        Tunables of all configs.
    """
    width, dtype = problem.width, problem.dtype
    middle = 8 if problem.matrix.nnz > _MANY else 4
    starts = [
        {**fixed, **tile, "searched": False, "run": max(middle, tile["batch"])} for tile in run_tiles(width, dtype)
    ]
    if not starts:
        return
    best = exhaustive(race, starts).config
    shorter = [run for run in RUNS[::-1] if best["batch"] <= run < best["run"]]
    longer = [run for run in RUNS if run > best["run"]]
    best = along(race, along(race, best, "run", shorter), "run", longer)
    tile = {name: value for name, value in best.items() if name not in fixed}
    if is_offered(width, dtype, {**tile, "searched": True}):
        race.time({**best, "searched": True})
