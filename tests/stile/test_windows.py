"""What searches of one matrix begin with: made once, and each search's own as far as picks change it."""

from __future__ import annotations

import threading

import numpy as np
from problems import random_csr
from stile_calibrations import SPMM

from spmark.impls.stile.space import SearchMode, shapes_of
from spmark.impls.stile.windows import Once, Tiled, begin, make_groups, order_of, row_order


def tiled(threads: int = 0) -> Tiled:
    rng = np.random.default_rng(5)
    matrix = random_csr(200, 150, rng.integers(0, 40, 200).tolist())
    return Tiled.of(matrix, threads)


def test_a_value_is_made_once_by_whoever_comes_first() -> None:
    once, made, gate = Once(), [], threading.Event()

    def make() -> object:
        gate.wait(5)
        made.append(object())
        return made[-1]

    found: list[object] = []
    askers = [threading.Thread(target=lambda: found.append(once.get("a", make))) for _ in range(4)]
    for one in askers:
        one.start()
    gate.set()
    for one in askers:
        one.join()
    assert found == made * 4
    assert once.get("b", lambda: 3) == 3


def test_searches_begin_with_the_same_and_change_their_own() -> None:
    first = tiled()
    shapes = shapes_of(SPMM, 32, 32, first.matrix.nnz, SearchMode.CODE)
    order, windows, groups = begin(first, shapes)
    np.testing.assert_array_equal(order, row_order(first, 16))
    assert order_of(first, 16) is order
    _, alone, _ = begin(tiled(), shapes)
    for name in windows._fields:
        np.testing.assert_array_equal(getattr(windows, name), getattr(alone, name))
    for name in groups._fields:
        np.testing.assert_array_equal(getattr(groups, name), getattr(make_groups(first, alone), name))
    first.owner[:] = 7
    for changed in (windows.left, windows.paid_ms, groups.left, groups.average, groups.at, groups.shape, groups.stale):
        changed[:] = 1
    second = first.again()
    assert (second.owner == -1).all()
    _, fresh, fresh_groups = begin(second, shapes)
    np.testing.assert_array_equal(fresh.left, alone.left)
    np.testing.assert_array_equal(fresh.paid_ms, 0)
    np.testing.assert_array_equal(fresh_groups.left, make_groups(second, alone).left)
    assert fresh_groups.members is groups.members  # which nothing changes
