"""Pieces and their layout in buckets, against slow and obvious loops."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import numpy as np
import pytest
from formats.test_roundtrip import csrs
from hypothesis import given
from hypothesis import strategies as st
from problems import random_csr

from spmark.impls.core.problem import Csr
from spmark.impls.formats import hyb, threads
from spmark.impls.formats.hyb import UNIT, HybFormat, lay_out, partition_columns, widths_up_to

import_module("spmark.impls.formats.loops")  # compiled before hypothesis looks at the clock

Piece = tuple[int, int, int, int]
"""Row, start, length, partition."""


def pieces_by_loop(matrix: Csr, partitions: int) -> list[Piece]:
    found: list[Piece] = []
    width = -(-matrix.num_cols // partitions)
    for row in range(matrix.num_rows):
        for at in range(matrix.indptr[row], matrix.indptr[row + 1]):
            part = int(matrix.indices[at]) // width
            if found and found[-1][0] == row and found[-1][3] == part:
                found[-1] = (row, found[-1][1], found[-1][2] + 1, part)
            else:
                found.append((row, at, 1, part))
    return found


def buckets_by_loop(
    pieces: list[Piece], ladders: list[tuple[int, ...]], tail_in_last: bool
) -> dict[tuple[int, int, bool], list[tuple[int, int, int]]]:
    """Give by partition, width and shared the row, start and length of every ELL row, in order."""
    folded = []
    for row, start, length, partition in pieces:
        most = ladders[partition][-1]
        for offset in range(0, length, most):
            part = min(most, length - offset)
            width = most if tail_in_last and length > most else next(w for w in ladders[partition] if w >= part)
            folded.append((partition, width, row, start + offset, part))
    uses = Counter(row for _, _, row, _, _ in folded)
    found: dict[tuple[int, int, bool], list[tuple[int, int, int]]] = {}
    for partition, width, row, start, length in folded:
        found.setdefault((partition, width, bool(uses[row] > 1)), []).append((row, start, length))
    return found


@given(csrs(), st.integers(1, 50))
def test_pieces_are_the_runs_of_a_loop(matrix: Csr, partitions: int) -> None:
    pieces = partition_columns(matrix, partitions)
    assert [*map(tuple, pieces.table.T.tolist())] == pieces_by_loop(matrix, partitions)
    assert (pieces.shape, pieces.nnz, pieces.partitions) == (matrix.shape, matrix.nnz, partitions)


@given(csrs(), st.data())
def test_layout_is_that_of_a_loop(matrix: Csr, data: st.DataObject) -> None:
    partitions = data.draw(st.integers(1, 4))
    max_widths = [data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64])) for _ in range(partitions)]
    tail_in_last, thirds = data.draw(st.booleans()), data.draw(st.booleans())
    layout = lay_out(partition_columns(matrix, partitions), max_widths, tail_in_last, thirds)
    ladders = [widths_up_to(max_width, thirds) for max_width in max_widths]
    expected = buckets_by_loop(pieces_by_loop(matrix, partitions), ladders, tail_in_last)
    order = sorted(expected, key=lambda kind: (kind[0], -kind[1], not kind[2]))
    assert [(b.partition, b.width, b.shared) for b in layout.buckets] == order
    first = base = 0
    for bucket, kind in zip(layout.buckets, order, strict=True):
        assert (bucket.first, bucket.base) == (first, base)
        rows = expected[kind]
        assert 0 <= bucket.count - len(rows) < max(1, UNIT // bucket.width)
        assert bucket.count * bucket.width % UNIT == 0
        rows = rows + [(-1, 0, 0)] * (bucket.count - len(rows))
        span = slice(first, first + bucket.count)
        assert list(zip(layout.rows[span], layout.starts[span], layout.lengths[span], strict=True)) == rows
        first, base = span.stop, base + bucket.count * bucket.width
    assert layout.stored == base


@pytest.mark.parametrize("form", [(1, 4), (3, 8), (16, 2), (1, 1024)], ids=str)
def test_many_tasks_give_what_one_gives(form: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.random.default_rng(3).integers(0, 60, 400).tolist()
    matrix = random_csr(400, 300, lengths)
    one = HybFormat.from_csr(matrix, *form)
    monkeypatch.setattr(threads, "SHARE", 50)
    monkeypatch.setattr(hyb, "_PLACE_SHARE", 50)
    monkeypatch.setattr(hyb, "_FILL_SHARE", 64)
    monkeypatch.setattr(threads, "cores", lambda: 4)
    monkeypatch.setattr(hyb, "cores", lambda: 4)
    assert threads.equal_shares(matrix.indptr).size > 10
    many = HybFormat.from_csr(matrix, *form)
    assert many.buckets == one.buckets
    for name in ("rows", "starts", "lengths", "indices", "values"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name), name)


@pytest.mark.parametrize("max_width", [0, -2, 3, 24, 1 << 31])
def test_widths_that_are_no_powers_of_two_are_refused(max_width: int) -> None:
    pieces = partition_columns(random_csr(3, 4, [1, 2, 1]), 2)
    with pytest.raises(ValueError, match=f"at most 2\\^30 to be a power of two, found {max_width}$"):
        lay_out(pieces, [2, max_width])


@given(csrs(), st.integers(1, 4), st.integers(0, 2**32))
def test_pieces_in_another_order_of_rows_are_those_of_the_reordered_matrix(
    matrix: Csr, partitions: int, seed: int
) -> None:
    rows = np.random.default_rng(seed).permutation(matrix.num_rows).astype(np.int32)
    moved = partition_columns(matrix, partitions).in_order(np.argsort(rows).astype(np.int32))
    reordered, _ = matrix.of_rows(rows)
    wanted = partition_columns(reordered, partitions)
    assert rows[wanted.table[0]].tolist() == moved.table[0].tolist()
    assert wanted.table[2:].tolist() == moved.table[2:].tolist()
    assert matrix.indices[moved.table[1]].tolist() == reordered.indices[wanted.table[1]].tolist()
