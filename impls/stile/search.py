"""The search: which tiles a matrix is divided into, for one operator, width and calibrated GPU.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3. A mixture of formats, blocks alone and the other format
alone are searched, and the plan that is predicted fastest is kept. The paper's mode does so for every part of J and for
several divisions of the columns. The search needs a `Calibration` and no device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, Op
from spmark.impls.formats import tiles
from spmark.impls.formats.threads import SHARE, run_all
from spmark.impls.formats.tiles import Selection
from spmark.impls.stile.calibration import Calibration
from spmark.impls.stile.greedy import PickedTiles, Rules
from spmark.impls.stile.mixture import Ground, Mixture, Piece, spent_ms
from spmark.impls.stile.space import Formats, SearchMode, Shapes, parts_of, shapes_of, widest_bucket
from spmark.impls.stile.state import LIGHT
from spmark.impls.stile.windows import Once

DIVISIONS = (1, 2, 4)
"""Numbers of column ranges that the paper's mode tries."""


@dataclass(frozen=True, eq=False)
class ChosenTiles:
    """The plan that the search chose."""

    selection: Selection
    predicted_ms: float
    """Time by the cost model: the cost of all tiles, over all multiprocessors evenly (definition 6)."""
    formats: Formats
    """The formats that the plan mixes."""
    part: int
    """Part of J of a tile."""
    divisions: int
    """Column ranges."""
    levels: int
    withdrawn: int
    """Tiles that were picked and replaced."""
    finished: bool
    """Whether the time sufficed for every search that was asked for."""
    predicted_of: Mapping[Formats, float] = field(default_factory=dict)
    """Least predicted time of each mixture that was searched."""


@dataclass(frozen=True, eq=False)
class Sought:
    """One of several searches that run together."""

    rules: Rules
    matrix: Csr
    """The matrix whose non-zeros decide which searches are worth doing."""
    ground: Callable[[], Ground]
    """Gives the matrix in the order of rows that is searched; called when the search begins."""


@dataclass(frozen=True)
class _Job:
    """A part of a search that is independent of the other parts."""

    number: int
    """Number of the search."""
    rules: Rules
    """Rules of the search, for one mixture."""
    part: int
    divisions: int


@dataclass(frozen=True)
class _Plan:
    pieces: tuple[Piece, ...]
    """Pieces of every column range, and of every order of rows there."""
    predicted_ms: float
    formats: Formats
    part: int


def search(
    matrix: Csr,
    calibration: Calibration,
    width: int,
    rules: Rules | None = None,
    time_budget_s: float = math.inf,
) -> ChosenTiles:
    """Search tiles.

    Parameters
    ----------
    matrix : Csr
    calibration : Calibration
        Gives the costs, and the operator and dtype that are searched for.
    width : int
        J.
    rules : Rules, optional
        A mixture is compared with both formats alone; a single format is searched as it is.
    time_budget_s : float
        No round begins after so many seconds. Non-zeros without a tile then get one without a search, and mixtures that
        have not begun are left out.

    Returns
    -------
    ChosenTiles
        Found in O(rounds (windows + tiles) + levels nnz); deterministic without a time budget.

    Raises
    ------
    ValueError
        Blocks alone are asked for, and the calibration has none.
    """
    return search_each(matrix, calibration, width, rules, time_budget_s)[0]


def search_each(
    matrix: Csr,
    calibration: Calibration,
    width: int,
    rules: Rules | None = None,
    time_budget_s: float = math.inf,
) -> list[ChosenTiles]:
    """Search as `search` does, and give the best plan of every mixture, the one predicted fastest first.

    The paper builds all three and keeps the one that is measured fastest (section 3.3).
    """
    rules = rules or Rules()
    ground = Ground(matrix, heavy([rules], calibration, time_budget_s))
    (plans,) = search_many([Sought(rules, matrix, lambda: ground)], calibration, width, time_budget_s)
    return plans


def search_many(
    sought: Sequence[Sought], calibration: Calibration, width: int, time_budget_s: float = math.inf
) -> list[list[ChosenTiles]]:
    """Search as `search_each` does, all at once where the matrix is worth threads and time is not limited.

    Parameters
    ----------
    sought : sequence of Sought
        A search of a single format that would find the tiles of an earlier search is left out.
    calibration : Calibration
    width : int
        J.
    time_budget_s : float
        Seconds for all searches together; the first always gives tiles.

    Returns
    -------
    list of list of ChosenTiles
        The answer of each search; empty where a search had not begun in time or was left out.
    """
    ends, prices = monotonic() + time_budget_s, Once()

    def late() -> bool:
        return monotonic() > ends

    def priced(job: _Job, nnz: int) -> Shapes:
        return shapes_of(calibration, width, job.part, nnz, job.rules.mode, job.rules.widest)

    def plan(job: _Job) -> _Plan:
        ground = sought[job.number].ground()
        nnz, rules = ground.matrix.nnz, job.rules
        shapes = prices.get((job.part, nnz, rules.mode, rules.widest), lambda: priced(job, nnz))
        return _plan(ground, calibration, shapes, job, late)

    jobs = _jobs(sought, calibration, width)
    if math.isfinite(time_budget_s):
        plans = [plan(jobs[0])]
        while len(plans) < len(jobs) and not late():
            plans.append(plan(jobs[len(plans)]))
    elif max(one.matrix.nnz for one in sought) < SHARE:
        plans = [plan(job) for job in jobs]
    else:
        longest_first = sorted(range(len(jobs)), key=lambda i: jobs[i].rules.formats is Formats.OTHER)
        done = dict(zip(longest_first, run_all(plan, [(jobs[i],) for i in longest_first]), strict=True))
        plans = [done[i] for i in range(len(jobs))]
    best: list[list[ChosenTiles]] = []
    for number, one in enumerate(sought):
        own = [plan for job, plan in zip(jobs, plans, strict=False) if job.number == number]
        whole = len(plans) == len(jobs) or jobs[len(plans)].number > number
        best.append(_best(one.ground().matrix, calibration.op, own, whole) if own else [])
    return best


def heavy(sought: Sequence[Rules], calibration: Calibration, time_budget_s: float = math.inf) -> int:
    """Count the long parts of searches that run at once and therefore share the cores; at least one."""
    if math.isfinite(time_budget_s):
        return 1
    mixtures = [formats for rules in sought for formats in _mixtures(rules, calibration)]
    return max(1, len(mixtures) - mixtures.count(Formats.OTHER))


def _jobs(sought: Sequence[Sought], calibration: Calibration, width: int) -> list[_Job]:
    """List the parts of all searches, without those that would find the tiles of an earlier part."""
    jobs: list[_Job] = []
    seen: set[object] = set()
    for number, one in enumerate(sought):
        rules = one.rules
        divisions = DIVISIONS if _divides(rules.mode, calibration, one.matrix) else (1,)
        parts = parts_of(calibration, width, rules.mode)
        for formats in _mixtures(rules, calibration):
            asked = replace(rules, formats=formats)
            reach = _reach(one.matrix, calibration, asked)
            key = number if reach is None else (one.ground, replace(asked, widest=0), reach)
            if key not in seen or reach is None:
                seen.add(key)
                jobs += [_Job(number, asked, *way) for way in product(parts, divisions)]
    return jobs


def _reach(matrix: Csr, calibration: Calibration, rules: Rules) -> int | None:
    """Give the width of the widest light tile where the matrix alone decides this width; else None."""
    if rules.formats is Formats.MIXED or calibration.op is not Op.SPMM:
        return None
    if rules.formats is Formats.BLOCKS:
        return 0
    widest = rules.widest or widest_bucket(matrix.nnz, calibration.num_sms)
    longest = int(matrix.row_lengths.max(initial=1))
    return min(widest, 1 << (longest - 1).bit_length())


def _best(matrix: Csr, op: Op, plans: Sequence[_Plan], whole: bool) -> list[ChosenTiles]:
    """Give the best plan of every mixture, the one predicted fastest first."""
    finished = whole and all(piece.picked.finished for plan in plans for piece in plan.pieces)
    best: dict[Formats, _Plan] = {}
    for one in sorted(plans, key=lambda one: one.predicted_ms):
        best.setdefault(one.formats, one)
    predicted = {f: best[f].predicted_ms for f in Formats if f in best}
    light = tiles.ELL if op is Op.SPMM else tiles.RUN
    return [_found(matrix, one, light, finished, predicted) for one in best.values()]


def _found(matrix: Csr, plan: _Plan, light: int, finished: bool, predicted: Mapping[Formats, float]) -> ChosenTiles:
    return ChosenTiles(
        _selection(matrix, plan, light),
        plan.predicted_ms,
        plan.formats,
        plan.part,
        len(plan.pieces),
        max(piece.picked.levels for piece in plan.pieces),
        sum(piece.picked.withdrawn for piece in plan.pieces),
        finished,
        predicted,
    )


def _mixtures(rules: Rules, calibration: Calibration) -> tuple[Formats, ...]:
    """List the mixtures that are searched, the surest first."""
    asked = rules.formats
    if asked is Formats.BLOCKS and not calibration.blocks:
        raise ValueError(
            f"{calibration.device}: expected costs of block tiles for {calibration.op} in {calibration.dtype}, found "
            "none: search other formats, or calibrate them"
        )
    if asked is not Formats.MIXED or not rules.compared:
        return (asked,)
    return (Formats.OTHER, Formats.MIXED, Formats.BLOCKS) if calibration.blocks else (Formats.OTHER,)


def _divides(mode: SearchMode, calibration: Calibration, matrix: Csr) -> bool:
    return mode is SearchMode.PAPER and calibration.op is Op.SPMM and matrix.num_cols >= DIVISIONS[-1]


def _plan(ground: Ground, calibration: Calibration, shapes: Shapes, job: _Job, late: Callable[[], bool]) -> _Plan:
    """Search one mixture over ranges of columns."""
    rules = job.rules
    if rules.formats is Formats.OTHER:
        # Tiles of one level overlap only at the ends of widths, so that all tiles of a shape are taken at once.
        rules = replace(rules, slack=math.inf)
        shapes = replace(shapes, heights=(), single_ms=shapes.single_ms[:0], plain_ms=shapes.plain_ms[:0])
    pieces = Mixture(ground, shapes, calibration.op is Op.SPMM, rules, late).pieces(job.divisions)
    predicted_ms = spent_ms(pieces) * shapes.repeats / calibration.num_sms
    return _Plan(tuple(pieces), predicted_ms, rules.formats, shapes.part)


def _selection(matrix: Csr, plan: _Plan, light: int) -> Selection:
    """Give numbers to the tiles that have non-zeros, and to the windows of blocks, through all column ranges."""
    owner = np.zeros(matrix.nnz, np.int32)
    parts, rows = [], []
    first_tile, first_window = 0, 0
    tallest = max((int(p.height[p.kind != LIGHT].max(initial=1)) for _, p in plan.pieces), default=1)
    for where, picked in plan.pieces:
        used = picked.used
        number = np.zeros(picked.kind.size, np.int32)
        number[used] = first_tile + np.arange(used.size, dtype=np.int32)
        if where is None:
            owner = number[picked.owner]
        else:
            owner[where] = number[picked.owner]
        block = picked.kind[used] != LIGHT
        height = picked.height[used]
        keys = np.where(block, picked.window[used].astype(np.int64) * (tallest + 1) + height, -1)
        windows, of = np.unique(keys[block], return_inverse=True)
        window = np.full(used.size, -1, np.int32)
        window[block] = first_window + of
        parts.append((np.where(block, tiles.BLOCK, light).astype(np.int8), height, picked.width[used], window))
        rows.append(_window_rows(picked, windows // (tallest + 1), windows % (tallest + 1), tallest))
        first_tile, first_window = first_tile + used.size, first_window + windows.size
    kind, height, width, window = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Selection(owner, kind, height, width, window, np.concatenate(rows))


def _window_rows(
    picked: PickedTiles, number: NDArray[np.int64], height: NDArray[np.int64], tallest: int
) -> NDArray[np.int32]:
    slot = np.arange(tallest)
    at = number[:, None] * height[:, None] + slot
    inside = (slot < height[:, None]) & (at < picked.order.size)
    return np.where(inside, picked.order[np.where(inside, at, 0)], -1).astype(np.int32)
