"""Windows of rows and the groups of their condensed columns, of which block candidates consist.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1: divide the rows, reorder the columns of every part by
their non-zeros, divide them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats.threads import SHARE, cores, equal_shares, run_all, with_scratch
from spmark.impls.stile.loops import condense, count_columns
from spmark.impls.stile.space import Shapes
from spmark.impls.stile.state import GROUP, Groups, Nonzeros, Windows

_SCRATCH = 12
"""Bytes of a task's scratch for each column, at most."""


class Once:
    """Values that several threads need: the first thread to ask makes a value while the others wait for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Give the value of ``key``; the first caller calls ``make``, whose error is raised to all callers."""
        with self._lock:
            future = self._made.get(key)
            mine = future is None
            if future is None:
                future = self._made[key] = Future()
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()


@dataclass(frozen=True, eq=False)
class Tiled:
    """A matrix on its way into tiles."""

    matrix: Csr
    """The matrix that is divided into tiles: all of A, or some of its columns."""
    whole: NDArray[np.int32]
    """(I,) non-zeros of every row of the undivided matrix."""
    row_of: NDArray[np.int32]
    """(nnz,) row of each non-zero of ``matrix``."""
    owner: NDArray[np.int32]
    """(nnz,) tile of each non-zero, or -1; picks write into it."""
    threads: int
    """Cores that the loops may take: others may search at the same time."""
    begun: Once = field(default_factory=Once)
    """The state that all searches of the matrix begin with."""

    @classmethod
    def of(cls, matrix: Csr, whole: NDArray[np.int32], threads: int = 0) -> Tiled:
        """Begin without tiles, by default with all cores."""
        rows = np.repeat(np.arange(matrix.num_rows, dtype=np.int32), matrix.row_lengths)
        return cls(matrix, whole, rows, np.full(matrix.nnz, -1, np.int32), threads or cores())

    def again(self) -> Tiled:
        """Begin again without tiles; the state that all searches begin with is kept."""
        return replace(self, owner=np.full(self.matrix.nnz, -1, np.int32))

    @property
    def nonzeros(self) -> Nonzeros:
        """What the loops read of the matrix, and the owners that they write."""
        matrix = self.matrix
        read = map(_only_read, (matrix.indptr, matrix.indices, self.row_of, self.whole))
        indptr, indices, row_of, whole = read
        return Nonzeros(indptr, indices, row_of, self.owner, whole)

    def tasks(self, work: int) -> int:
        """Give the number of tasks that so many non-zeros are worth, and that have room for their scratch."""
        return with_scratch(min(self.threads, work // SHARE), _SCRATCH * self.matrix.num_cols)

    def row_shares(self) -> list[tuple[int, int]]:
        """Cut the rows into ranges for one task each."""
        return self.begun.get("shares", self._row_shares)  # type: ignore[no-any-return]

    def _row_shares(self) -> list[tuple[int, int]]:
        matrix = self.matrix
        tasks = self.tasks(matrix.nnz + matrix.num_rows)
        if tasks == 1:
            return [(0, matrix.num_rows)]
        bounds = equal_shares(matrix.indptr)
        few = np.linspace(0, bounds.size - 1, min(tasks, bounds.size - 1) + 1).astype(np.int64)
        return list(pairwise(map(int, bounds[few])))


def begin(tiled: Tiled, shapes: Shapes, whole_ones: bool) -> tuple[NDArray[np.int32], Windows, Groups]:
    """Give the state that a search begins with; parts that searches share are made once for all of the matrix.

    Parameters
    ----------
    tiled : Tiled
        Without owners yet.
    shapes : Shapes
    whole_ones : bool
        Whether windows may be held whole at all.

    Returns
    -------
    order : (I,) int32
        Rows, window after window (`row_order`).
    windows, groups : `Windows`, `Groups`
        The search has its own copies of the arrays that picks change.
    """
    heights = shapes.heights
    order = order_of(tiled, heights[0]) if heights else np.arange(tiled.matrix.num_rows, dtype=np.int32)
    counted = tiled.begun.get(("counted", heights), lambda: _counted(tiled, heights, order))
    windows = _windows(tiled, shapes, counted, whole_ones)
    groups = tiled.begun.get(("groups", heights), lambda: make_groups(tiled, windows, (counted.columns, counted.nnz)))
    changed = {name: getattr(groups, name).copy() for name in ("left", "average", "at", "shape", "stale")}
    return order, windows, groups._replace(**changed)


def order_of(tiled: Tiled, height: int) -> NDArray[np.int32]:
    """Give `row_order`, made once for all searches of the matrix."""
    return tiled.begun.get(("order", height), lambda: row_order(tiled, height))  # type: ignore[no-any-return]


def row_order(tiled: Tiled, height: int) -> NDArray[np.int32]:
    """Choose the order of rows whose condensed windows are densest.

    The choices are A's own order, by falling non-zeros, and by first column, which puts rows of one stride together.

    Returns
    -------
    (I,) int32
        O(nnz) for each of the three orders.
    """
    matrix = tiled.matrix
    first = np.full(matrix.num_rows, matrix.num_cols, np.int32)
    filled = np.flatnonzero(matrix.row_lengths)
    first[filled] = matrix.indices[matrix.indptr[filled]]
    orders = [np.arange(matrix.num_rows), *(np.argsort(key, kind="stable") for key in (-matrix.row_lengths, first))]
    candidates = [order.astype(np.int32) for order in orders]
    return min(candidates, key=lambda order: area(tiled, order, height))


def area(tiled: Tiled, order: NDArray[np.int32], height: int) -> int:
    """Count the groups of columns of an order's condensed windows, over non-zeros without an owner. O(nnz)."""
    columns, _ = _count(tiled, _bounds(tiled.matrix.num_rows, height), order)
    return int((-(-columns // GROUP)).sum())


@dataclass(frozen=True, eq=False)
class _Counted:
    """Windows before they are priced."""

    of: NDArray[np.int32]
    row_ptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    height: NDArray[np.int32]
    """``of`` to ``height`` are those of `Windows`."""
    columns: NDArray[np.int64]
    """(W,) distinct columns of each window."""
    nnz: NDArray[np.int64]
    divided: NDArray[np.bool_]
    """(W,) whether a row goes on in other column ranges."""


def _counted(tiled: Tiled, heights: tuple[int, ...], order: NDArray[np.int32]) -> _Counted:
    matrix = tiled.matrix
    num_rows = matrix.num_rows
    of = np.zeros((num_rows, len(heights)), np.int32)
    bounds, number = [np.zeros(1, np.int64)], []
    first = 0
    for a, height in enumerate(heights):
        own = _bounds(num_rows, height)
        of[order, a] = first + np.arange(num_rows, dtype=np.int32) // height
        bounds.append(own[1:] + a * num_rows)
        number.append(np.full(own.size - 1, a, np.int32))
        first += own.size - 1
    row_ptr = np.concatenate(bounds)
    rows = np.tile(order, len(heights)) if heights else np.zeros(0, np.int32)
    columns, nnz = _count(tiled, row_ptr, rows)
    divided = np.zeros(nnz.size, np.bool_)
    if nnz.size:
        divided = np.logical_or.reduceat((matrix.row_lengths < tiled.whole)[rows], row_ptr[:-1])
    return _Counted(of, row_ptr, rows, np.concatenate([*number, np.zeros(0, np.int32)]), columns, nnz, divided)


def _windows(tiled: Tiled, shapes: Shapes, counted: _Counted, whole_ones: bool) -> Windows:
    """Price holding each window whole."""
    whole_ms = np.full(counted.nnz.size, np.inf)
    if whole_ones and whole_ms.size:
        for s in range(shapes.plain_ms.shape[1]):
            tiles = -(-counted.columns // ((s + 1) * GROUP))
            single, plain = shapes.single_ms[counted.height, s], shapes.plain_ms[counted.height, s]
            cost = np.where(counted.divided, single, plain)
            whole_ms = np.minimum(whole_ms, np.where(np.isfinite(cost), tiles * cost, np.inf))
    fields = counted.of, counted.row_ptr, counted.rows, counted.height, counted.nnz
    return Windows(*fields, counted.nnz.copy(), whole_ms, np.zeros(whole_ms.size))


def make_groups(
    tiled: Tiled, windows: Windows, counted: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
) -> Groups:
    """Condense the non-zeros left in every window. O(nnz) for each height, on all cores.

    Parameters
    ----------
    tiled : Tiled
    windows : `Windows`
    counted : (W,) int64 arrays, optional
        Columns and non-zeros left in every window; counted where this is left out.
    """
    matrix = tiled.matrix
    columns, nnz = counted or _count(tiled, windows.row_ptr, windows.rows)
    ptr, nnz_ptr = offsets(-(-columns // GROUP)), offsets(nnz)
    count, num_groups = columns.size, int(ptr[-1])
    groups = Groups(
        of=np.full((matrix.nnz, windows.of.shape[1]), -1, np.int32),
        ptr=ptr,
        members=np.zeros(int(nnz_ptr[-1]), np.int32),
        member_ptr=np.full(num_groups + 1, nnz_ptr[-1], np.int64),
        left=np.zeros(num_groups, np.int32),
        average=np.where(nnz > 0, 0.0, np.inf),  # below every average: every window is ranked before a pick
        at=np.zeros(count, np.int32),
        shape=np.zeros(count, np.int32),
        stale=np.ones(count, np.uint8),
    )
    tasks = []
    for a in range(windows.of.shape[1]):
        first, stop = np.searchsorted(windows.height, (a, a + 1))
        for share in _shares(tiled, nnz_ptr, int(first), int(stop)):
            scratch = np.zeros((3, matrix.num_cols), np.int32)
            tasks.append((tiled.nonzeros, windows.row_ptr, windows.rows, a, *share, groups, nnz_ptr, scratch))
    run_all(condense, tasks)
    return groups


def _only_read(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _bounds(num_rows: int, height: int) -> NDArray[np.int64]:
    return np.minimum(np.arange(-(-num_rows // height) + 1, dtype=np.int64) * height, num_rows)


def _count(
    tiled: Tiled, row_ptr: NDArray[np.int64], rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count columns and non-zeros without an owner of every window."""
    matrix, count = tiled.matrix, row_ptr.size - 1
    columns, nnz = np.zeros(count, np.int64), np.zeros(count, np.int64)
    before = offsets(matrix.row_lengths[rows])
    tasks = [
        (tiled.nonzeros, row_ptr, rows, *share, np.full(matrix.num_cols, -1, np.int32), columns, nnz)
        for share in _shares(tiled, before[row_ptr], 0, count)
    ]
    run_all(count_columns, tasks)
    return columns, nnz


def _shares(tiled: Tiled, before: NDArray[np.int64], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut windows ``first:stop`` into ranges of about equal work; ``before`` (W + 1,) is the work before each."""
    total = int(before[stop] - before[first])
    tasks = tiled.tasks(total)
    if tasks == 1:
        return iter([(first, stop)])
    wanted = before[first] + np.linspace(0, total, tasks + 1)[1:-1]
    cuts = first + np.searchsorted(before[first:stop], wanted)
    return pairwise([first, *map(int, cuts), stop])
