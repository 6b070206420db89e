"""The searches that run at once for a plan, and the tiles that each finds.

Where plans are measured, longer ELL rows and another order of rows are searched beside the paper's three mixtures (Fang
et al., SIGMOD 2024, section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Problem
from spmark.impls.formats.nearness import RowOrder, near_order
from spmark.impls.formats.tiles import ELL, Selection
from spmark.impls.stile.calibration import Calibration

if TYPE_CHECKING:  # all bring the compiled loops along
    from spmark.impls.stile.greedy import Rules
    from spmark.impls.stile.mixture import Ground
    from spmark.impls.stile.search import ChosenTiles


@dataclass(frozen=True, eq=False)
class Tiling:
    """Tiles that a search found."""

    found: ChosenTiles
    widest: int
    """Widest ELL tile; 0 where there is none."""
    positions: NDArray[np.int32] | None = None
    """(I,) place of every row in the order that was searched; None for A's own order."""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the tiles for a plan's config."""
        chosen = self.found
        return {
            "formats": str(chosen.formats),
            "part": chosen.part,
            "divisions": chosen.divisions,
            "widest": self.widest,
            "rows": "as they stand" if self.positions is None else "near",
            "levels_used": chosen.levels,
            "withdrawn": chosen.withdrawn,
            "predicted_us": round(chosen.predicted_ms * 1e3, 4),
            **({} if chosen.finished else {"search": "cut short"}),
        }


@dataclass(frozen=True)
class Wanted:
    """A search that is wanted."""

    rules: Rules
    near: bool = False
    """Whether rows are ordered first, so that rows that share columns stand together (primitive 1)."""


def forms_of(
    problem: Problem, calibration: Calibration, width: int, wanted: Sequence[Wanted], budget_s: float
) -> list[Tiling]:
    """Search everything that is wanted.

    Parameters
    ----------
    problem : Problem
    calibration : Calibration
    width : int
        J that is searched for.
    wanted : sequence of Wanted
        A plan without measuring comes from the first search. Tilings with the formats and the widest ELL tile of an
        earlier one are left out.
    budget_s : float
        Seconds for all searches together. The first search always gives tiles; searches that have not begun by then
        are left out.

    Returns
    -------
    list of Tiling
        Those of the first search come first, and among these the one that is predicted fastest.
    """
    from spmark.impls.stile.mixture import Ground
    from spmark.impls.stile.search import Sought, heavy, search_many
    from spmark.impls.stile.windows import Once

    matrix = problem.matrix
    searches = heavy([one.rules for one in wanted], calibration, budget_s)
    as_it_stands, once = Ground(matrix, searches), Once()

    def ordered() -> _Ordered:
        rows = near_order(matrix)
        moved, at = matrix.of_rows(rows.rows)
        return _Ordered(rows, at, Ground(moved, searches))

    def near() -> _Ordered:
        return once.get("near", ordered)  # type: ignore[no-any-return]

    grounds = {False: lambda: as_it_stands, True: lambda: near().ground}
    sought = [Sought(one.rules, matrix, grounds[one.near]) for one in wanted]
    forms: list[Tiling] = []
    seen: set[tuple[str, int, bool]] = set()
    for one, each in zip(wanted, search_many(sought, calibration, width, budget_s), strict=True):
        moved = near() if one.near and each else None
        for chosen in each:
            selection = chosen.selection
            widest = int(selection.width[selection.kind == ELL].max(initial=0))
            if (str(chosen.formats), widest, one.near) not in seen:
                seen.add((str(chosen.formats), widest, one.near))
                if moved:
                    selection = out_of_order(selection, moved.rows.rows, moved.at)
                positions = moved.rows.positions if moved else None
                forms.append(Tiling(replace(chosen, selection=selection), widest, positions))
    return forms


def out_of_order(selection: Selection, order: NDArray[np.int32], at: NDArray[np.int64]) -> Selection:
    """Translate a selection from a matrix of A's rows in another order (`Csr.of_rows`) to A."""
    owner = np.empty_like(selection.owner)
    owner[at] = selection.owner
    rows = selection.window_rows
    return replace(selection, owner=owner, window_rows=np.where(rows >= 0, order[rows], -1).astype(np.int32))


class _Ordered(NamedTuple):
    """The matrix with its rows in another order."""

    rows: RowOrder
    at: NDArray[np.int64]
    ground: Ground
