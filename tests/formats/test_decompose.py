"""Decomposition: parts whose sum is the matrix, each non-zero in one of them, and what their rows share."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import numpy as np
import pytest
from formats.test_roundtrip import csrs, entries
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_same, random_csr

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.decompose import Part, Rule, decompose, row_use
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.rules import BlockRule, Buckets, Remainder

import_module("spmark.impls.formats.loops")  # compiled before hypothesis looks at the clock

RULES = st.one_of(
    st.builds(BlockRule, st.integers(1, 17), st.sampled_from([0.01, 0.25, 0.5, 1.0])),
    st.builds(Buckets, st.sampled_from([1, 4, 16, 64]), st.integers(1, 5), st.booleans()),
    st.builds(Remainder),
)


def total(parts: list[Part]) -> Csr:
    """Put the parts' entries together, in CSR order; entries that two parts hold would be there twice."""
    found = sorted((row, col, value.tobytes()) for part in parts for row, col, value in entries(part.held.to_csr()))
    num_rows = parts[0].held.shape[0]
    indptr = np.searchsorted([row for row, _, _ in found], np.arange(num_rows + 1)).astype(np.int32)
    values = np.frombuffer(b"".join(value for _, _, value in found), np.float32)
    return Csr(parts[0].held.shape, indptr, np.array([col for _, col, _ in found], np.int32), values)


@given(csrs(), st.lists(RULES, max_size=4))
def test_the_sum_of_the_parts_is_the_matrix(matrix: Csr, rules: list[Rule]) -> None:
    parts = decompose(matrix, [*rules, Remainder()])
    assert bool(parts) == bool(matrix.nnz)
    if parts:
        assert_same(total(parts), matrix)


@given(csrs(), st.lists(RULES, max_size=4))
def test_shared_rows_are_those_of_several_pieces(matrix: Csr, rules: list[Rule]) -> None:
    parts = decompose(matrix, [*rules, Remainder()])
    use = row_use(matrix.num_rows, [part.rows for part in parts])
    pieces: Counter[int] = Counter()
    for part in parts:
        if isinstance(part.held, HybFormat):
            pieces.update(row for row in part.held.rows.tolist() if row >= 0)
        else:
            pieces.update({row for row, _, _ in entries(part.held.to_csr())})
    assert use.shared.tolist() == [row for row in range(matrix.num_rows) if pieces[row] > 1]
    assert use.empty.tolist() == [row for row in range(matrix.num_rows) if not pieces[row]]
    for part in parts:  # what a kernel is told bucket by bucket is what the zeroing is told
        if isinstance(part.held, HybFormat):
            for bucket in part.held.buckets:
                rows = part.held.rows[bucket.first : bucket.first + bucket.count]
                assert np.all(np.isin(rows[rows >= 0], use.shared) == bucket.shared)


@given(csrs(), st.integers(1, 9), st.sampled_from([0.05, 0.5, 1.0]))
def test_blocks_are_taken_by_their_density(matrix: Csr, size: int, density: float) -> None:
    taken = BlockRule(size, density).select(matrix)
    count = Counter((row // size, col // size) for row, col, _ in entries(matrix))
    expected = [count[row // size, col // size] >= density * size * size for row, col, _ in entries(matrix)]
    assert taken.tolist() == expected


def test_rules_take_turns_and_name_their_kernels() -> None:
    dense = np.zeros((40, 64), np.bool_)
    dense[16:32, 32:48] = True
    dense[3, :40] = True
    dense[20, [1, 5]] = True
    dense[7, 2] = True
    rows, cols = np.nonzero(dense)
    values = np.random.default_rng(0).random(rows.size).astype(np.float32)
    matrix = Csr.checked(dense.shape, np.searchsorted(rows, np.arange(41)), cols, values)
    blocks, buckets, rest = decompose(matrix, [BlockRule(16), Buckets(4, fold=False), Remainder()])
    assert [part.kernel for part in (blocks, buckets, rest)] == ["bsr_tiles", "ell_buckets", "csr_rows"]
    assert isinstance(blocks.held, BsrFormat)
    assert blocks.held.stored == 256
    assert buckets.rows.tolist() == [20, 7]
    assert rest.rows.tolist() == [3]
    assert isinstance(buckets.held, HybFormat)
    assert [bucket.shared for bucket in buckets.held.buckets] == [True, False], "row 20 is a block's, too"
    use = row_use(40, [part.rows for part in (blocks, buckets, rest)])
    assert use.shared.tolist() == [20]
    assert use.empty.size == 40 - 18


def test_what_no_rule_takes_is_an_error_that_says_what_and_what_to_do() -> None:
    matrix = random_csr(4, 30, [0, 9, 2, 20])
    with pytest.raises(BuildError, match=r"all of 31 non-zeros, found 20 left, the first in row 3.*Remainder\(\)"):
        decompose(matrix, [Buckets(16, fold=False)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BlockRule(0), "at least 1 x 1, found 0"),
        (lambda: BlockRule(16, 0), r"\(0, 1\], found 0"),
        (lambda: Buckets(12), "power of two, found 12"),
    ],
)
def test_illegal_rules_are_refused(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
