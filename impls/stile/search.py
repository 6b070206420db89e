"""The search: which tiles a matrix is divided into, for one operator, width and calibrated GPU.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3. A mixture of formats, blocks alone and the other format
alone are searched, and what is predicted to be fastest is kept; in the paper's mode for every part of J and several
divisions of the columns. No device is needed: all that is known of one is its `Calibration`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, Op
from spmark.impls.formats import tiles
from spmark.impls.formats.decompose import split
from spmark.impls.formats.threads import run_all
from spmark.impls.formats.tiles import Selection
from spmark.impls.stile.calibration import Calibration
from spmark.impls.stile.greedy import Greedy, Picked, Rules, Step
from spmark.impls.stile.space import Formats, Mode, Shapes, parts_of, shapes_of
from spmark.impls.stile.state import LIGHT
from spmark.impls.stile.windows import Tiled, area, row_order

DIVISIONS = (1, 2, 4)
"""Numbers of column ranges that the paper's mode tries."""
_MUCH_DENSER = 0.75
"""Groups of columns in another order over those in the order at hand, below which what is left is searched again."""

_MUCH_CHEAPER = 0.5
"""Share of their cost that tiles which are no blocks are given while two orders of rows are looked for: only blocks
that are that much better keep what they hold from the second order."""

_Pieces = list[tuple[NDArray[np.int64] | None, Picked]]
"""Of every column range or order of rows its non-zeros, None for all of the matrix, and their tiles."""


@dataclass(frozen=True, eq=False)
class Found:
    """What the search chose."""

    selection: Selection
    predicted_ms: float
    """Time by the cost model: the cost of all tiles, over all multiprocessors evenly (definition 6)."""
    formats: Formats
    """What the fastest plan mixes."""
    part: int
    """Part of J of a tile."""
    divisions: int
    """Column ranges."""
    levels: int
    withdrawn: int
    """Tiles that were picked and replaced."""
    finished: bool
    """Whether the time sufficed for every search that was asked for."""
    trace: tuple[Step, ...]
    """Rounds of the plan that was kept, of its first column range."""
    predicted_of: Mapping[Formats, float] = field(default_factory=dict)
    """Least predicted time of each mixture that was searched."""


@dataclass(frozen=True)
class _Plan:
    picked: tuple[tuple[NDArray[np.int64] | None, Picked], ...]
    """Of every column range its non-zeros, None for all of the matrix, and their tiles."""
    predicted_ms: float
    formats: Formats
    part: int


def search(
    matrix: Csr,
    calibration: Calibration,
    width: int,
    rules: Rules | None = None,
    time_budget_s: float = math.inf,
) -> Found:
    """Search tiles.

    Parameters
    ----------
    matrix : Csr
    calibration : Calibration
        Says the operator and the dtype too.
    width : int
        J.
    rules : Rules, optional
        A mixture is compared with both formats alone; a single format is searched as it is.
    time_budget_s : float
        No round is begun after so many seconds; what has no tile by then gets one without a search, and mixtures that
        have not begun are left out.

    Returns
    -------
    Found
        For SpMM and SDDMM O(rounds (windows + tiles) + levels nnz) each; deterministic but for the time budget.

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
) -> list[Found]:
    """Search as `search` does, and give the best plan of every mixture, the one predicted fastest first.

    The paper builds all three and keeps what is measured to be fastest (section 3.3).
    """
    rules = rules or Rules()
    started = perf_counter()

    def late() -> bool:
        return perf_counter() - started > time_budget_s

    def plan(formats: Formats, part: int, count: int) -> _Plan:
        shapes = shapes_of(calibration, width, part, matrix.nnz, rules.mode, rules.widest)
        return _plan(matrix, calibration, shapes, replace(rules, formats=formats), count, late)

    divisions = DIVISIONS if _divides(rules.mode, calibration, matrix) else (1,)
    parts = parts_of(calibration, width, rules.mode)
    jobs = list(product(_mixtures(rules.formats, calibration), parts, divisions))
    if math.isinf(time_budget_s):
        plans = run_all(plan, jobs)  # they share nothing but the matrix
    else:
        plans = [plan(*jobs[0])]
        while len(plans) < len(jobs) and not late():
            plans.append(plan(*jobs[len(plans)]))
    all_done = len(plans) == len(jobs) and all(picked.finished for one in plans for _, picked in one.picked)
    best: dict[Formats, _Plan] = {}
    for one in sorted(plans, key=lambda one: one.predicted_ms):
        best.setdefault(one.formats, one)
    predicted = {f: best[f].predicted_ms for f in Formats if f in best}
    light = tiles.ELL if calibration.op is Op.SPMM else tiles.RUN
    return [_found(matrix, one, light, all_done, predicted) for one in best.values()]


def _found(matrix: Csr, plan: _Plan, light: int, finished: bool, predicted: Mapping[Formats, float]) -> Found:
    return Found(
        _selection(matrix, plan, light),
        plan.predicted_ms,
        plan.formats,
        plan.part,
        len(plan.picked),
        max(picked.levels for _, picked in plan.picked),
        sum(picked.withdrawn for _, picked in plan.picked),
        finished,
        plan.picked[0][1].trace,
        predicted,
    )


def _mixtures(asked: Formats, calibration: Calibration) -> tuple[Formats, ...]:
    """List what is searched, the surest first."""
    if asked is Formats.BLOCKS and not calibration.blocks:
        raise ValueError(
            f"{calibration.device}: expected costs of block tiles for {calibration.op} in {calibration.dtype}, found "
            "none: search other formats, or calibrate them"
        )
    if asked is not Formats.MIXED:
        return (asked,)
    return (Formats.OTHER, Formats.MIXED, Formats.BLOCKS) if calibration.blocks else (Formats.OTHER,)


def _divides(mode: Mode, calibration: Calibration, matrix: Csr) -> bool:
    return mode is Mode.PAPER and calibration.op is Op.SPMM and matrix.num_cols >= DIVISIONS[-1]


def _plan(  # noqa: PLR0917
    matrix: Csr, calibration: Calibration, shapes: Shapes, rules: Rules, count: int, late: Callable[[], bool]
) -> _Plan:
    """Search one mixture over ``count`` column ranges."""
    ell = calibration.op is Op.SPMM
    whole = matrix.row_lengths.astype(np.int32)
    if rules.formats is Formats.OTHER:
        # Tiles of one level do not overlap but at the ends of widths, so that all of a shape are taken at once.
        rules = replace(rules, slack=math.inf)
        shapes = replace(shapes, heights=(), single_ms=shapes.single_ms[:0], plain_ms=shapes.plain_ms[:0])
    size = -(-matrix.num_cols // count)
    held: _Pieces = []
    for i in range(count):
        taken, where = matrix, None
        if count > 1:
            inside = (matrix.indices >= i * size) & (matrix.indices < (i + 1) * size)
            taken, where = split(matrix, inside)[0], np.flatnonzero(inside)
        tiled = Tiled.of(taken, whole)
        found = where, Greedy(tiled, shapes, ell, rules, late).run()
        alone = rules.formats is Formats.BLOCKS
        pieces = [found] if alone else _rearranged(matrix, whole, found, shapes, ell, rules, late)
        if len(pieces) == 1 and (alone or _mostly_blocks(found[1])):
            other = _in_two_orders(matrix, whole, where, shapes, ell, rules, late)
            pieces = other if _spent_ms(other) < _spent_ms(pieces) else pieces
        held += pieces
    spent = sum(picked.spent_ms for _, picked in held)
    return _Plan(tuple(held), spent * shapes.repeats / calibration.num_sms, rules.formats, shapes.part)


def _spent_ms(held: _Pieces) -> float:
    """Give the cost of tiles; infinite where there are none."""
    return sum(picked.spent_ms for _, picked in held) if held else math.inf


def _mostly_blocks(picked: Picked) -> bool:
    """Tell whether blocks hold more than half of the non-zeros, so that too few are left to be rearranged."""
    return 2 * int(np.count_nonzero(picked.kind[picked.owner] == LIGHT)) < picked.owner.size


def _in_two_orders(  # noqa: PLR0917
    matrix: Csr,
    whole: NDArray[np.int32],
    where: NDArray[np.int64] | None,
    shapes: Shapes,
    ell: bool,
    rules: Rules,
    late: Callable[[], bool],
) -> _Pieces:
    """Search blocks in one order of rows where they pay by far, and in another all that these leave.

    Blocks that hold a window whole may cost less than anything else in their order, and still more than blocks in two.
    Nothing, where the rest is not much denser in another order.
    """
    inside = np.ones(matrix.nnz, np.bool_)
    if where is not None:
        inside[:] = False
        inside[where] = True
    if not rules.rearrange or late():
        return []
    tiled = Tiled.of(split(matrix, inside)[0] if where is not None else matrix, whole)
    price = shapes.price._replace(
        plain_ms=shapes.price.plain_ms * _MUCH_CHEAPER, atomic_ms=shapes.price.atomic_ms * _MUCH_CHEAPER
    )
    strict = replace(shapes, price=price, cheapest_ms=shapes.cheapest_ms * _MUCH_CHEAPER)
    picked = Greedy(tiled, strict, ell, replace(rules, formats=Formats.MIXED), late).run()
    light = picked.kind[picked.owner] == LIGHT
    if light.all() or not light.any():
        return []
    at = np.flatnonzero(inside)
    left = np.zeros(matrix.nnz, np.bool_)
    left[at[light]] = True
    rest, height = Tiled.of(split(matrix, left)[0], whole), shapes.heights[0]
    if late() or area(rest, row_order(rest, height), height) > _MUCH_DENSER * area(rest, picked.order, height):
        return []
    other = Greedy(rest, shapes, ell, rules, late).run()
    return [(at[~light], replace(picked, owner=picked.owner[~light])), (at[light], other)]


def _rearranged(  # noqa: PLR0917
    matrix: Csr,
    whole: NDArray[np.int32],
    found: tuple[NDArray[np.int64] | None, Picked],
    shapes: Shapes,
    ell: bool,
    rules: Rules,
    late: Callable[[], bool],
) -> list[tuple[NDArray[np.int64] | None, Picked]]:
    """Search what blocks have left once more where another order of rows makes it much denser.

    The paper regroups what is left level by level (section 3.1); its code keeps one order of rows for blocks. A band
    and the strides beside it are dense in two different orders.
    """
    where, picked = found
    light = picked.kind[picked.owner] == LIGHT
    if not (rules.rearrange and rules.formats is Formats.MIXED and shapes.heights) or light.all() or not light.any():
        return [found]
    inside = light
    if where is not None:
        inside = np.zeros(matrix.nnz, np.bool_)
        inside[where[light]] = True
    rest = Tiled.of(split(matrix, inside)[0], whole)
    height = shapes.heights[0]
    if late() or area(rest, row_order(rest, height), height) > _MUCH_DENSER * area(rest, picked.order, height):
        return [found]
    other = Greedy(rest, shapes, ell, rules, late).run()
    kept, left = (replace(picked, owner=picked.owner[which]) for which in (~light, light))
    if other.spent_ms >= left.spent_ms:
        return [found]
    of_kept, of_other = (np.flatnonzero(which) if where is None else where[which] for which in (~light, light))
    return [(of_kept, kept), *_rearranged(matrix, whole, (of_other, other), shapes, ell, rules, late)]


def _selection(matrix: Csr, plan: _Plan, light: int) -> Selection:
    """Give numbers to the tiles that have non-zeros, and to the windows of blocks, through all column ranges."""
    owner = np.zeros(matrix.nnz, np.int32)
    parts, rows = [], []
    first_tile, first_window = 0, 0
    tallest = max((int(p.height[p.kind != LIGHT].max(initial=1)) for _, p in plan.picked), default=1)
    for where, picked in plan.picked:
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
    picked: Picked, number: NDArray[np.int64], height: NDArray[np.int64], tallest: int
) -> NDArray[np.int32]:
    slot = np.arange(tallest)
    at = number[:, None] * height[:, None] + slot
    inside = (slot < height[:, None]) & (at < picked.order.size)
    return np.where(inside, picked.order[np.where(inside, at, 0)], -1).astype(np.int32)
