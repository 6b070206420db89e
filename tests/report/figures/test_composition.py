"""The composition's bins, shares and colours against loops that count one by one."""

from __future__ import annotations

import numpy as np
import pytest
from figure_texts import assert_readable
from matplotlib.colors import to_rgb
from problems import matrices, random_csr

from spmark.impls.core.stores import Held, StoreKind, Stores
from spmark.report.figures.composition import composition, spy_counts, store_colours, store_counts
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN


def four_stores(nnz: int) -> Stores:
    """Deal non-zeros to four stores of three kinds, by their places."""
    names = (StoreKind.BUCKET, "bucket of 2"), (StoreKind.BUCKET, "bucket of 4"), (StoreKind.BLOCK, "b"), ("row", "r")
    held = [
        Held(StoreKind(kind), name, np.arange(nnz)[at::4].size + 3 * at, np.arange(nnz)[at::4])
        for at, (kind, name) in enumerate(names)
    ]
    return Stores.of(nnz, held)


@pytest.mark.parametrize("name", ["empty_rows", "wide", "tall", "one_by_one", "hub"])
def test_bins_hold_what_a_loop_counts(name):
    matrix, most = matrices()[name], 16
    stores = four_stores(matrix.nnz)
    counts = store_counts(matrix, stores, most)
    assert np.array_equal(counts.sum(axis=2), spy_counts(matrix.shape, matrix.indptr, matrix.indices, most))
    expected = np.zeros_like(counts)
    starts = [np.arange(n + 1) * size // n for n, size in zip(counts.shape[:2], matrix.shape, strict=True)]
    for place, (row, col) in enumerate(zip(matrix.rows_of_entries(), matrix.indices, strict=True)):
        at = [np.searchsorted(edges, index, "right") - 1 for edges, index in zip(starts, (row, col), strict=True)]
        expected[at[0], at[1], stores.store_of[place]] += 1
    assert np.array_equal(counts, expected)


@pytest.mark.parametrize("width_in", [WIDTH_IN, COLUMN_IN])
def test_a_picture_keeps_its_numbers(width_in):
    matrix = matrices()["hub"]
    stores = four_stores(matrix.nnz)
    counts = store_counts(matrix, stores)
    plot = composition("mine", stores, counts, matrix.shape, width_in)
    data = plot.data
    assert data["kind"].tolist() == ["block", "bucket", "bucket", "row"]
    assert data["nnz"].sum() == matrix.nnz
    assert data["stored"].sum() == stores.stored == matrix.nnz + 3 * (1 + 2 + 3)
    assert data[["nnz_share", "stored_share"]].sum().tolist() == pytest.approx([1, 1])
    assert data["padding"].tolist() == pytest.approx((data["stored"] / data["nnz"] - 1).tolist())
    assert f"a padding of {stores.padding:.1%}" in plot.caption
    labels = [text.get_text() for ax in plot.figure.axes for text in ax.get_yticklabels()]
    assert {"non-zeros", "stored"} <= set(labels)


def test_the_image_shows_the_store_of_most_non_zeros():
    matrix = random_csr(8, 8, [8] * 8)
    top, rest = np.arange(32), np.arange(32, 64)
    stores = Stores.of(
        64, [Held(StoreKind.ROW, "r", 32, top), Held(StoreKind.BLOCK, "b", 30, rest[2:]),
             Held(StoreKind.LITERAL, "l", 2, rest[:2])],
    )  # fmt: skip
    counts = store_counts(matrix, stores, 2)
    plot = composition("mine", stores, counts, matrix.shape)
    image = np.asarray(plot.figure.axes[1].images[0].get_array())
    block, row, _ = (to_rgb(colour) for colour in store_colours(stores.parts))
    assert np.allclose(image[0], [row, row], atol=1 / 255)
    assert np.allclose(image[1], [block, block], atol=1 / 255)


@pytest.mark.parametrize("width_in", [WIDTH_IN, COLUMN_IN])
@pytest.mark.parametrize("shape", [(3_000, 4_000), (100, 3_000_000), (3_000_000, 100)])
def test_texts_stay_apart(shape: tuple[int, int], width_in: float) -> None:
    names = [(StoreKind.BUCKET, f"bucket of {1 << power}") for power in range(11)]
    names += [(StoreKind.BLOCK, "blocks of 16 x 16"), (StoreKind.ROW, "rows by threads"), (StoreKind.LITERAL, "code")]
    held = [Held(kind, name, 2, np.array([at])) for at, (kind, name) in enumerate(names[:-1])]
    stores = Stores.of(16, [*held, Held(*names[-1], 3, np.arange(13, 16))])
    counts = np.eye(14, dtype=np.int64).reshape(2, 7, 14)
    plot = composition("a name", stores, counts, shape, width_in)
    assert_readable(plot.figure)
    assert plot.finding == "Most non-zeros, 19%, are in code."


def test_a_matrix_without_non_zeros_is_white():
    counts = np.zeros((3, 4, 0), np.int64)
    plot = composition("mine", Stores.of(0, []), counts, (3, 4))
    assert plot.finding == ""
    assert np.asarray(plot.figure.axes[1].images[0].get_array()).min() == 1.0
