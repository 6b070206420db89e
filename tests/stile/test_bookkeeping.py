"""The books of a search, which its compiled loops keep up to date, against a slow count after every pick."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from stile_calibrations import SDDMM, SPMM, TWO_HEIGHTS
from stile_recount import Event, Recounted, on_grid

from spmark.impls.core.problem import Csr
from spmark.impls.stile.calibration import Calibration
from spmark.impls.stile.loops import WHOLE, pick_lights, stretched
from spmark.impls.stile.space import Formats, Rules, SearchMode, shapes_of
from spmark.impls.stile.windows import Tiled

FINE, COARSE = 2.0**-40, 2.0**-10
"""Steps of costs in ms: one that changes next to nothing, one at which many candidates cost the same."""


def mixed(seed: int, num_rows: int, num_cols: int, density: float) -> Csr:
    """Draw hubs, scattered non-zeros and windows whose first columns are dense."""
    rng = np.random.default_rng(seed)
    pattern = rng.random((num_rows, num_cols)) < density
    for top in range(0, num_rows, 16):
        columns = rng.choice(num_cols, min(num_cols, int(rng.integers(4, 28))), replace=False)
        pattern[top : top + 16, columns] |= rng.random((min(16, num_rows - top), columns.size)) < rng.uniform(0.2, 1)
    pattern[rng.integers(num_rows)] |= rng.random(num_cols) < 0.6
    rows, cols = np.nonzero(pattern)
    indptr = np.concatenate([[0], np.cumsum(pattern.sum(axis=1))])
    return Csr.checked(pattern.shape, indptr, cols, rng.uniform(0.5, 1, rows.size))


def search(matrix: Csr, calibration: Calibration, rules: Rules, *costs: float) -> Recounted:
    shapes = on_grid(shapes_of(calibration, 32, 32, matrix.nnz, rules.mode), *costs)
    run = Recounted(Tiled.of(matrix), shapes, rules)
    picked = run.run()
    alive = np.unique(picked.owner)
    assert picked.spent_ms == run._state.chosen.cost_ms[alive].sum()
    return run


CALIBRATIONS = {"spmm": SPMM, "two_heights": TWO_HEIGHTS, "sddmm": SDDMM}
RULES = {
    "code": ("spmm", Rules(SearchMode.CODE)),
    "code_keeps": ("spmm", Rules(SearchMode.CODE, withdraw=False)),
    "code_blocks": ("spmm", Rules(SearchMode.CODE, Formats.BLOCKS, local_search=1.0)),
    "code_levels": ("spmm", Rules(SearchMode.CODE, local_search=0.0, levels=2)),
    "paper": ("spmm", Rules(SearchMode.PAPER, local_search=0.3)),
    "paper_heights": ("two_heights", Rules(SearchMode.PAPER, local_search=0.0)),
    "paper_heights_keep": ("two_heights", Rules(SearchMode.PAPER, local_search=0.0, withdraw=False, levels=3)),
    "paper_heights_blocks": ("two_heights", Rules(SearchMode.PAPER, Formats.BLOCKS, local_search=0.0)),
    "sddmm": ("sddmm", Rules(SearchMode.CODE)),
    "sddmm_paper": ("sddmm", Rules(SearchMode.PAPER, local_search=0.0)),
    "sddmm_paper_near": ("sddmm", Rules(SearchMode.PAPER, local_search=0.3)),
}
SHAPES = [(40, 60, 0.06), (70, 30, 0.15), (33, 200, 0.04), (96, 120, 0.03), (82, 153, 0.15)]
COSTS = {
    "as_published": (FINE, 1.0, 1.0),
    "dear_windows": (FINE, 3.0, 1.0),
    "cheap_rows": (FINE, 4.0, 0.4),
    "equals": (COARSE, 4.6, 0.5),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("calibration", "rules"), RULES.values(), ids=RULES)
def test_every_account_is_right_after_every_pick(
    calibration: str, rules: Rules, shape: tuple[int, int, float], costs: tuple[float, float, float]
) -> None:
    for seed in range(2):
        search(mixed(seed, *shape), CALIBRATIONS[calibration], rules, *costs)


def test_the_matrices_call_for_every_kind_of_pick() -> None:
    picked: Counter[Event] = Counter()
    withdrawn = ties = 0
    for costs in COSTS.values():
        for shape in SHAPES:
            run = search(mixed(0, *shape), SPMM, Rules(SearchMode.CODE), *costs)
            picked.update({step.event: step.picked for step in run.trace})
            withdrawn += sum(step.withdrawn for step in run.trace)
            ties += run.ties
    assert picked.keys() == {Event.BEFOREHAND, Event.BLOCK, Event.WINDOW, Event.OTHER}
    assert withdrawn > 10
    assert ties > 0


def test_the_paper_s_local_search_takes_every_shape_and_both_formats_in_one_round() -> None:
    def kinds_of_a_round(mode: SearchMode) -> set[tuple[bool, int]]:
        matrix, rules = mixed(0, *SHAPES[2]), Rules(mode, local_search=5.0, levels=1, withdraw=False)
        run = search(matrix, SPMM, rules, FINE, 1e4, 0.2)
        count = next(step.picked for step in run.trace if step.event in (Event.BLOCK, Event.OTHER))
        chosen, first = run._state.chosen, sum(step.picked for step in run.trace if step.event is Event.BEFOREHAND)
        picks = range(first, first + count)
        return {(chosen.window[tile] < 0, int(chosen.shape[tile])) for tile in picks}

    found = kinds_of_a_round(SearchMode.PAPER)
    assert {light for light, _ in found} == {False, True}
    assert (False, WHOLE) not in found
    assert len(found) > 2
    assert len(kinds_of_a_round(SearchMode.CODE)) == 1


def test_windows_that_give_back_more_than_they_cost_are_taken_together() -> None:
    """Rows of 24 are cut in 16 and 8: once all tiles of 8 are picked, each window gives back more than it costs."""
    count = 48
    indices = np.concatenate([np.sort(np.random.default_rng(row).permutation(60)[:24]) for row in range(count)])
    matrix = Csr.checked((count, 60), np.arange(count + 1) * 24, indices, np.ones(indices.size))
    rules = Rules(SearchMode.PAPER, local_search=0.5)
    shapes = on_grid(shapes_of(SPMM, 32, 32, matrix.nnz, rules.mode, widest=16), FINE, 0.2, 1.0)
    run = Recounted(Tiled.of(matrix), shapes, rules)
    run._regroup()
    narrow, count, before = 1, run._level.first.size, run._state.chosen.tally.copy()
    pick_lights(run._state, run._level, math.inf, narrow, 0, count)
    run.note(Event.OTHER, 0.0, before)
    run.run()
    first, *_ = run.trace[1:]
    assert first.event is Event.WINDOW
    assert first.average_ms < 0
    assert first.picked > 1
    assert first.left == 0


@pytest.mark.parametrize(
    ("average", "slack", "limit"),
    [(10.0, 0.2, 12.0), (-10.0, 0.2, -8.0), (0.0, 0.2, 0.0), (-10.0, 0.0, -10.0), (10.0, math.inf, math.inf)],
)
def test_slack_reaches_above_an_average_of_either_sign(average: float, slack: float, limit: float) -> None:
    assert stretched(average, slack) == limit
