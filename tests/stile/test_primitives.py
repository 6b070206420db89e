"""Primitives: any composition can be undone, and those that the paper names give the formats that it names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_same, random_csr
from stile_calibrations import SDDMM, SPMM
from stile_primitives import Axis, View, divide, flatten, pad, reorder, restore, split, squeeze

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.hyb import widths_up_to
from spmark.impls.stile.levels import make_level
from spmark.impls.stile.space import SearchMode, shapes_of
from spmark.impls.stile.windows import Tiled, begin


def drawn(seed: int, num_rows: int = 50, num_cols: int = 70) -> Csr:
    rng = np.random.default_rng(seed)
    return random_csr(num_rows, num_cols, rng.integers(0, num_cols // 2, num_rows).tolist(), seed)


STEPS = {
    "reorder rows": lambda view, n: [reorder(view, Axis.ROWS)],
    "reorder columns": lambda view, n: [reorder(view, Axis.COLUMNS)],
    "divide rows": lambda view, n: divide(view, Axis.ROWS, n),
    "divide columns": lambda view, n: divide(view, Axis.COLUMNS, n),
    "squeeze": lambda view, n: [squeeze(view)],
    "squeeze and split": lambda view, n: [split(squeeze(view), n)],
    "pad": lambda view, n: [pad(view, n, n)],
    "squeeze and flatten": lambda view, n: [flatten(squeeze(view))],
}


@given(st.integers(0, 99), st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 40)), max_size=5))
def test_any_composition_can_be_undone(seed: int, steps: list[tuple[str, int]]) -> None:
    matrix = drawn(seed)
    views = [View.of(matrix)]
    for name, n in steps:
        views = [after for view in views for after in STEPS[name](view, n)]
    for view in views:
        places = set(zip(view.rows.tolist(), view.slots.tolist(), strict=True))
        assert len(places) == view.rows.size, "two non-zeros stand in one place"
        assert all(0 <= row < view.shape[0] and 0 <= slot < view.shape[1] for row, slot in places)
    found = restore(views, matrix)
    assert_same(found, matrix)


def test_bsr_is_rows_and_columns_divided() -> None:
    matrix = drawn(1)
    blocks = [part for rows in divide(View.of(matrix), Axis.ROWS, 4) for part in divide(rows, Axis.COLUMNS, 4)]
    assert sum(block.rows.size > 0 for block in blocks) == BsrFormat.from_csr(matrix, 4, 4).indices.size


def test_hyb_is_split_and_reordered() -> None:
    matrix = drawn(2)
    for part in divide(View.of(matrix), Axis.COLUMNS, 35):
        folded = reorder(split(squeeze(part), 8), Axis.ROWS)
        lengths = folded.counts(Axis.ROWS)
        assert folded.shape[1] <= 8
        assert list(lengths) == sorted(lengths, reverse=True)
        assert {1 << int(n - 1).bit_length() for n in lengths if n} <= set(widths_up_to(8))


def test_condensing_is_what_the_search_does() -> None:
    matrix = drawn(3)
    tiled = Tiled.of(matrix, matrix.row_lengths.astype(np.int32))
    shapes = shapes_of(SPMM, 32, 32, matrix.nnz, SearchMode.CODE)
    tiled.begun.get(("order", shapes.heights[0]), lambda: np.arange(matrix.num_rows, dtype=np.int32))
    _, windows, groups = begin(tiled, shapes, True)
    for number, part in enumerate(divide(View.of(matrix), Axis.ROWS, 16)):
        condensed = divide(reorder(part, Axis.COLUMNS), Axis.COLUMNS, 16)
        sizes = [group.rows.size for group in condensed if group.rows.size]
        assert groups.left[groups.ptr[number] : groups.ptr[number + 1]].tolist() == sizes
        assert windows.total[number] == part.rows.size


def test_one_dimensional_tiles_are_flattened_and_split() -> None:
    matrix = drawn(4)
    tiles = divide(split(flatten(squeeze(View.of(matrix))), 32), Axis.ROWS, 1)
    tiled = Tiled.of(matrix, matrix.row_lengths.astype(np.int32))
    level = make_level(tiled, shapes_of(SDDMM, 64, 64, matrix.nnz, SearchMode.CODE), False, 0)
    found = [level.items[a:b].tolist() for a, b in zip(level.first, level.stop, strict=True)]
    assert found == [tile.at.tolist() for tile in tiles]


def test_ell_tiles_are_squeezed_split_and_reordered() -> None:
    matrix = drawn(5)
    tiled = Tiled.of(matrix, matrix.row_lengths.astype(np.int32))
    shapes = shapes_of(SPMM, 32, 32, matrix.nnz, SearchMode.CODE)
    level = make_level(tiled, shapes, True, 0)
    ranked = reorder(split(squeeze(View.of(matrix)), shapes.widest), Axis.ROWS)
    lengths = ranked.counts(Axis.ROWS)
    for first, stop, shape in zip(level.first, level.stop, level.shape, strict=True):
        width, height = int(shapes.price.width[shape]), int(shapes.price.height[shape])
        rows = ranked.rows[np.isin(ranked.at, level.items[first:stop])]
        assert np.unique(rows).size <= height
        assert lengths[rows].max() <= width
        assert lengths[rows].max() > width // 2
        np.testing.assert_array_equal(level.items[first:stop], ranked.at[np.isin(ranked.rows, rows)])


def test_what_must_be_squeezed_says_so() -> None:
    view = View.of(drawn(6))
    for wrong in (lambda: split(view, 4), lambda: flatten(view)):
        with pytest.raises(ValueError, match="squeeze"):
            wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda view: divide(view, Axis.ROWS, 0),
        lambda view: split(squeeze(view), 0),
        lambda view: pad(view, 0, 1),
    ],
)
def test_sizes_below_one_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match="at least"):
        wrong(View.of(drawn(7)))


def test_what_is_missing_is_found() -> None:
    matrix = drawn(8)
    parts = divide(View.of(matrix), Axis.ROWS, 16)
    with pytest.raises(BuildError, match="0 times"):
        restore(parts[1:], matrix)
    with pytest.raises(BuildError, match="2 times"):
        restore([*parts, parts[0]], matrix)
