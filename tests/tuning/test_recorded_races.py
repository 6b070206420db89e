"""Races of cuSPARSE's variants with the samples that an H200 gave: what each took then, and what it takes now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.interfaces import Built, Config, Plan
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import key_of
from spmark.records.plausible import read_candidates, read_measurements

RACES = Path(__file__).parents[2] / "report" / "reference" / "race" / "nvidia-h200"
SLOW = 1.05
"""Times of a choice over the fastest variant's; both are lower quartiles, which disturbed samples do not move."""
BEFORE = 15
"""Samples of a variant before the last round, in these records."""
Samples = dict[Any, list[float]]


class Recorded:
    """A clock that gives each plan its recorded samples in their order, and where these end, from the first again."""

    def __init__(self, samples: Samples) -> None:
        self._samples, self._next = samples, {key: cycle(times) for key, times in samples.items()}

    def check(self, plan: Plan) -> None:
        assert key_of(plan.config) in self._samples

    def times_us(self, plans: Sequence[Plan], rounds: int) -> list[list[float]]:
        return [list(islice(self._next[key_of(plan.config)], rounds)) for plan in plans]

    def alternating_us(self, plans: Sequence[Plan]) -> list[list[float]]:
        return [times[BEFORE:] or times for times in (self._samples[key_of(plan.config)] for plan in plans)]


def races(folder: Path) -> Iterator[tuple[str, list[Config], Samples]]:
    """Give each race's case, its variants in their order, and their samples."""
    for case, rows in groupby(read_candidates(folder / "candidates.jsonl.gz"), lambda row: row.case_id):
        one = {key_of(row.config): row for row in rows}
        yield case, [row.config for row in one.values()], {key: row.samples_us for key, row in one.items()}


def behind(chosen: Config, samples: Samples) -> float:
    """Give the chosen variant's time over that of the fastest of those that were timed in the last round."""
    quartiles = {key: np.percentile(times, 25) for key, times in samples.items() if len(times) > BEFORE}
    return float(quartiles[key_of(chosen)] / min(quartiles.values())) if quartiles else 1.0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("side", "slow"), [("before", 0), ("after", 5), ("mended", 0)])
def test_no_race_takes_a_slow_variant_because_samples_were_disturbed(side: str, slow: int) -> None:
    folder = RACES / side / "judging_graphs"
    then: dict[str, list[Config]] = {}
    for record in read_measurements(folder / "records.jsonl.gz"):
        then.setdefault(record.case_id, []).append({"algorithm": "default"} | record.config)
    taken, takes = [], []
    for case, variants, samples in races(folder):
        race = Race(lambda config: Built(config=dict(config)), Recorded(samples))
        race.time_all(variants)
        taken.append(behind(then[case].pop(0), samples))
        takes.append(behind(race.finish()[0], samples))
    assert len(takes) == 840
    assert sum(times > SLOW for times in taken) == slow
    assert sum(times > SLOW for times in takes) == 0
