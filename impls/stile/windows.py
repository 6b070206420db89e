"""Windows of rows and the groups of their condensed columns, of which block candidates consist.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1: divide the rows, reorder the columns of every part by
their non-zeros, divide them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, offsets
from spmark.impls.formats import loops
from spmark.impls.formats.threads import SHARE, cores, equal_shares, run_all, with_scratch
from spmark.impls.formats.tiles import GROUP
from spmark.impls.stile.loops import Groups, Nonzeros, Windows, condense
from spmark.impls.stile.space import Shapes

_SCRATCH = 12
"""Bytes of a task's scratch for each column, at most."""


class Once:
    """Values that several threads need: the first thread to ask makes a value while the others wait for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._locks: defaultdict[Hashable, Lock] = defaultdict(Lock)
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Give the value of ``key``, which the first caller's ``make`` makes."""
        with self._lock:
            own = self._locks[key]
        with own:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]


@dataclass(frozen=True, eq=False)
class Tiled:
    """A matrix on its way into tiles."""

    matrix: Csr
    """The matrix that is divided into tiles: all of A, or some of its non-zeros."""
    whole: NDArray[np.int32]
    """(I,) non-zeros of every row of the undivided matrix."""
    threads: int
    """Cores that the loops may take: others may search at the same time."""
    row_of: NDArray[np.int32]
    """(nnz,) row of each non-zero of ``matrix``."""
    owner: NDArray[np.int32]
    """(nnz,) tile of each non-zero, or -1; picks write into it."""
    begun: Once = field(default_factory=Once)
    """The state that all searches of the matrix begin with."""

    @classmethod
    def of(cls, matrix: Csr, threads: int = 0, whole: NDArray[np.int32] | None = None) -> Tiled:
        """Begin without tiles, by default with all cores and an undivided matrix."""
        whole = matrix.row_lengths if whole is None else whole
        return cls(matrix, whole, threads or cores(), matrix.rows_of_entries(), np.full(matrix.nnz, -1, np.int32))

    def again(self) -> Tiled:
        """Begin again without tiles; the state that all searches begin with is kept."""
        return replace(self, owner=np.full(self.matrix.nnz, -1, np.int32))

    def part(self, taken: NDArray[np.bool_]) -> Tiled:
        """Begin with the non-zeros that ``taken`` (nnz,) marks."""
        matrix, before = self.matrix, offsets(taken, np.int32)
        marked = Csr(matrix.shape, before[matrix.indptr], matrix.indices[taken], matrix.values[taken])
        return Tiled.of(marked, self.threads, self.whole)

    def columns(self, number: int, count: int) -> tuple[NDArray[np.int64], Tiled]:
        """Begin with one of ``count`` ranges of columns; also give the positions of its non-zeros."""

        def made() -> tuple[NDArray[np.int64], Tiled]:
            inside = self.matrix.indices // -(-self.matrix.num_cols // count) == number
            return np.flatnonzero(inside), self.part(inside)

        whole = count == 1
        where, tiled = (np.arange(self.matrix.nnz), self) if whole else self.begun.get((number, count), made)
        return where, tiled.again()

    @cached_property
    def nonzeros(self) -> Nonzeros:
        """What the loops read of the matrix, and the owners that they write."""
        read = [array.view() for array in (self.matrix.indptr, self.matrix.indices, self.row_of, self.whole)]
        for array in read:
            array.flags.writeable = False
        indptr, indices, row_of, whole = read
        return Nonzeros(indptr, indices, row_of, whole, self.owner)

    def tasks(self, work: int) -> int:
        """Give the number of tasks that so many non-zeros are worth, and that have room for their scratch."""
        return with_scratch(min(self.threads, work // SHARE), _SCRATCH * self.matrix.num_cols)

    def shares(self, before: NDArray[Any], first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Cut ``first:stop`` (rows or windows) into ranges of about equal work, for one task each.

        ``before`` (n + 1,) is the work before each row or window, in non-zeros.
        """
        work = before[first : stop + 1] - before[first]
        return pairwise((first + equal_shares(work, self.tasks(int(work[-1])))).tolist())


def begin(tiled: Tiled, shapes: Shapes) -> tuple[NDArray[np.int32], Windows, Groups]:
    """Give the state that a search begins with; parts that searches share are made once for all of the matrix.

    Parameters
    ----------
    tiled : Tiled
        Without owners yet.
    shapes : Shapes

    Returns
    -------
    order : (I,) int32
        Rows, window after window (`row_order`).
    windows, groups : `Windows`, `Groups`
        The search has its own copies of the arrays that picks change.
    """
    heights = shapes.heights
    order = order_of(tiled, heights[0]) if heights else np.arange(tiled.matrix.num_rows, dtype=np.int32)
    windows, columns, divided = tiled.begun.get(("windows", heights), lambda: _windows(tiled, heights, order))
    groups = tiled.begun.get(("groups", heights), lambda: make_groups(tiled, windows, (columns, windows.total)))
    changed = {name: getattr(groups, name).copy() for name in ("left", "average", "at", "shape", "stale")}
    whole_ms = _whole_ms(shapes, windows, columns, divided)
    own = windows._replace(left=windows.total.copy(), whole_ms=whole_ms, paid_ms=np.zeros(columns.size))
    return order, own, groups._replace(**changed)


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
    return min((order.astype(np.int32) for order in orders), key=lambda order: area(tiled, order, height))


def area(tiled: Tiled, order: NDArray[np.int32], height: int) -> int:
    """Count the groups of columns of an order's condensed windows, over non-zeros without an owner. O(nnz)."""
    columns, _ = _count(tiled, _bounds(tiled.matrix.num_rows, height), order)
    return int((-(-columns // GROUP)).sum())


def _windows(
    tiled: Tiled, heights: tuple[int, ...], order: NDArray[np.int32]
) -> tuple[Windows, NDArray[np.int64], NDArray[np.bool_]]:
    """Give windows without prices, the distinct columns of each, and whether one of its rows has other non-zeros."""
    matrix, num_rows = tiled.matrix, tiled.matrix.num_rows
    ends = [_bounds(num_rows, height)[1:] for height in heights]
    firsts = offsets(np.array([own.size for own in ends], np.int64))
    of = np.zeros((num_rows, len(heights)), np.int32)
    for a, height in enumerate(heights):
        of[order, a] = firsts[a] + np.arange(num_rows, dtype=np.int32) // height
    row_ptr = np.concatenate([np.zeros(1, np.int64), *(own + a * num_rows for a, own in enumerate(ends))])
    rows = np.tile(order, len(heights))
    columns, nnz = _count(tiled, row_ptr, rows)
    divided = np.logical_or.reduceat((matrix.row_lengths < tiled.whole)[rows], row_ptr[:-1])
    height_of = np.repeat(np.arange(len(heights), dtype=np.int32), np.diff(firsts))
    prices = np.zeros(nnz.size)
    return Windows(of, row_ptr, rows, height_of, nnz, nnz, prices, prices), columns, divided


def _whole_ms(
    shapes: Shapes, windows: Windows, columns: NDArray[np.int64], divided: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Price holding each window whole, which SDDMM never does."""
    whole_ms = np.full(columns.size, np.inf)
    for s in range(shapes.plain_ms.shape[1] if shapes.ell else 0):
        cost = np.where(divided, shapes.single_ms[windows.height, s], shapes.plain_ms[windows.height, s])
        whole_ms = np.minimum(whole_ms, np.maximum(-(-columns // ((s + 1) * GROUP)), 1) * cost)
    return whole_ms


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
        for share in tiled.shares(nnz_ptr, int(first), int(stop)):
            scratch = np.zeros((3, matrix.num_cols), np.int32)
            tasks.append((tiled.nonzeros, windows, a, *share, groups, nnz_ptr, scratch))
    run_all(condense, tasks)
    return groups


def _bounds(num_rows: int, height: int) -> NDArray[np.int64]:
    return np.minimum(np.arange(-(-num_rows // height) + 1, dtype=np.int64) * height, num_rows)


def _count(
    tiled: Tiled, row_ptr: NDArray[np.int64], rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count columns and non-zeros without an owner of every window."""
    matrix, count = tiled.matrix, row_ptr.size - 1
    columns, nnz = np.zeros(count, np.int64), np.zeros(count, np.int64)
    before = offsets(matrix.row_lengths[rows])
    given = matrix.indptr, matrix.indices, tiled.owner, row_ptr, rows
    tasks = [
        (*given, *share, np.full(matrix.num_cols, -1, np.int32), columns, nnz)
        for share in tiled.shares(before[row_ptr], 0, count)
    ]
    run_all(loops.count_columns, tasks)
    return columns, nnz
