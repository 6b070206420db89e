"""A platform that configs are collected for: SPADE-like, simulated, ours, and not the published simulator.

A simulator computes no result, so that it is no implementation: nothing here makes a record of a case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.spade_sim.simulate import Simulator
from spmark.impls.spade_sim.space import default, space

__all__ = ["LABEL", "NOTE", "default", "seconds", "space", "version"]

LABEL: Final = "spade_sim"
NOTE: Final = "SPADE-like, simulated; not the published simulator"
"""Stands wherever a figure of this platform is shown."""


def seconds(problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
    """Price configs of one problem.

    Parameters
    ----------
    problem : Problem
        In float32.
    configs : sequence of dict
        Of ``space(problem)``.

    Returns
    -------
    (configs,) float64
        Simulated seconds, the same on every machine. O(configs nnz J / d_split) time.

    Raises
    ------
    ProblemError
        The problem is not in float32, or a config does not fit it.
    """
    simulator = Simulator(problem)
    return np.array([simulator.run(config).seconds for config in configs], np.float64)


def version() -> str:
    """Give sixteen hex digits over the code that a price depends on, the parameters of the machine included."""
    return implementation_version(LABEL)
