"""A race on made-up times: plans are configs, and a function of a config says what a run takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import Built, Config, Plan
from spmark.impls.tuning.race import Race

Cost = Callable[[Config], float]
"""Microseconds of a config; raises `SpmarkError` or MemoryError where it cannot be built or is wrong."""


class MadeUpTimer:
    """A clock without a device: samples scatter around a plan's cost by a seeded share.

    Parameters
    ----------
    cost : callable
    noise : float
        Standard deviation of a sample, as a share of the cost.
    """

    def __init__(self, cost: Cost, noise: float = 0.0, seed: int = 0) -> None:
        self.cost, self.noise, self._random = cost, noise, np.random.default_rng(seed)
        self.asked: list[Config] = []
        self.turns: list[list[Config]] = []
        self.finals: list[list[Config]] = []

    def check(self, plan: Plan) -> None:
        self.asked.append(dict(plan.config))
        self.cost(dict(plan.config))

    def times_us(self, plans: Sequence[Plan], rounds: int) -> list[list[float]]:
        self.turns.append([dict(plan.config) for plan in plans])
        return [list(self._samples(plan, rounds)) for plan in plans]

    def alternating_us(self, plans: Sequence[Plan]) -> list[list[float]]:
        self.finals.append([dict(plan.config) for plan in plans])
        return self.times_us(plans, 50)

    def _samples(self, plan: Plan, rounds: int) -> Iterator[float]:
        for scatter in self._random.standard_normal(rounds):
            yield self.cost(dict(plan.config)) * (1 + self.noise * float(scatter))


def made_up_race(cost: Cost, noise: float = 0.0, seed: int = 0, **options: Any) -> tuple[Race[Built], MadeUpTimer]:
    """Give a race of configs that cost what ``cost`` says, and its clock."""
    timer = MadeUpTimer(cost, noise, seed)
    return Race(lambda config: Built(config=dict(config)), timer, **options), timer


__all__ = ["Cost", "MadeUpTimer", "made_up_race"]
