"""The launcher of RGMS for maps: thread blocks own rows of Y, float16 on the matrix unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spmark.impls.core.interfaces import Config
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat
from spmark.impls.kernels.relational_hyb import TILES, tiles_within
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import KernelTemplate, TemplateValue

_THREADS = 128
RGMS_ROWS = KernelTemplate(
    Path(__file__).parent / "relational_rows.cu",
    "rgms_rows",
    {
        "tile": TILES,
        "rows": (64, 128),
        "depth": (32, 64),
        "vector": (1, 8),
        "valued": (False, True),
        "threads": (_THREADS,),
    },
    max_registers=200,
    max_spill_bytes=16,  # a compiler that fits a round number of registers puts pointers aside
)


class RelationalRowsPlan(OneLaunchPlan):
    """Y by `RGMS_ROWS`; where all of A's values are 1, they are neither held nor read.

    Parameters
    ----------
    problem : RelationalProblem
        In float16.
    target : Target
    held : RelationalRows
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    **schedule : int
        - ``tile``: columns of Y of a thread block (32, 64, 128);
        - ``depth``: columns of X between two barriers (32, 64).

    Raises
    ------
    BuildError
        There is no kernel for the schedule.
    """

    def __init__(
        self, problem: RelationalProblem, target: Target, held: RelationalRows, config: Config, **schedule: int
    ) -> None:
        instance = RGMS_ROWS.instance(**rows_arguments(problem, held.tile, **schedule))
        valued = bool(instance.values["valued"])
        super().__init__(problem, target, {**config, **schedule}, alignment=2 * int(instance.values["vector"]))
        self.stored = held.stored
        self._load(instance)
        tile, depth = schedule["tile"], schedule["depth"]
        self._shared_bytes = 4 * (held.tile * (depth + 8) + depth * (tile + 8))
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            values = np.zeros(held.positions.shape if valued else 0, np.float16)
            if valued:
                real = held.positions >= 0
                values[real] = problem.values[held.positions[real]]
        grid = (held.places.size // held.tile, ceil_div(problem.width_out, tile), 1)
        self._arrange(
            grid,
            (held.places.size, problem.width_in, problem.width_out),
            (held.places, held.sets, held.neighbours, values),
        )


def rows_arguments(problem: RelationalProblem, rows: int, **schedule: int) -> dict[str, TemplateValue]:
    """Give the arguments of `RGMS_ROWS` for thread blocks of so many rows of Y and a schedule."""
    vector = 8 if problem.width_in % 8 == 0 and problem.width_out % 8 == 0 else 1
    valued = bool((problem.values != 1).any())
    return {"rows": rows, "vector": vector, "valued": valued, **schedule, "threads": _THREADS}


def _axes(problem: RelationalProblem, pinned: Config) -> Axes:
    """Give every schedule whose tile and step are no wider than operands, the smallest first."""
    return {
        "rows": RGMS_ROWS.space["rows"],
        "tile": tiles_within(problem.width_out),
        "depth": (32,) if problem.width_in <= 32 else (32, 64),
    }


RELATIONAL_ROWS = KernelFamily(
    mark="rows",
    templates=(RGMS_ROWS,),
    axes=_axes,
    opened=lambda problem, target: OneFormat(
        ("rows",),
        lambda form: RelationalRows.of(problem.matrix, form["rows"]),
        lambda held, form, schedule, _: RelationalRowsPlan(problem, target, held, form, **schedule),
    ),
    kernel=lambda problem, config: RGMS_ROWS.instance(**rows_arguments(problem, **config)),
)
"""For problems in float16 whose matrix has the form (`spmark.impls.formats.relational_rows.why_not_rows`)."""
