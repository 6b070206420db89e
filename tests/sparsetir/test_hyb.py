"""hyb(c, k): the padding that the paper's table 1 states, and what decomposition promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import assert_same, matrices, random_csr
from way_back import csr_of

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import Bucket, HybFormat, slots_of, widths_up_to
from spmark.records.schema import Orientation

SHAPES = [(1, 1), (1, 4), (1, 32), (2, 8), (5, 16), (16, 2)]


@pytest.mark.parametrize("form", SHAPES, ids=str)
@pytest.mark.parametrize("tail_in_last", [False, True])
@pytest.mark.parametrize("matrix", matrices().values(), ids=matrices())
def test_round_trip(matrix: Csr, form: tuple[int, int], tail_in_last: bool) -> None:
    held = HybFormat.from_csr(matrix, *form, tail_in_last)
    assert_same(csr_of(held), matrix)


@pytest.mark.parametrize("width", [0, 3, 33])
def test_a_width_that_is_no_power_of_two_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        HybFormat.from_csr(random_csr(3, 3, [1, 1, 1]), 1, width)


LENGTHS = [45] * 10 + [3, 12, 16, 17, 24, 25, 32, 33, 48, 49, 64, 65, 96, 97, 128, 129, 176, 200, 400]
WIDTHS = [48] * 10 + [4, 16, 16, 24, 24, 32, 32, 48, 48, 64, 64, 96, 96, 128, 128]
"""Of the buckets of rows up to 128; the longer ones are folded."""
FOLDED = {129: [128, 1], 176: [128, 48], 200: [128, 96], 400: [128, 128, 128, 16]}


@pytest.mark.parametrize("tail_in_last", [False, True])
def test_widths_between_the_powers_of_two_by_hand(tail_in_last: bool) -> None:
    matrix = random_csr(len(LENGTHS), 450, LENGTHS)
    held = HybFormat.from_csr(matrix, 1, 128, tail_in_last, thirds=True)
    assert_same(csr_of(held), matrix)
    widths: list[list[int]] = [[] for _ in LENGTHS]
    for bucket in held.buckets:
        rows = span_of(held, bucket)
        for row in rows[rows >= 0]:
            widths[row].append(bucket.width)
    assert [width for width, *_ in widths[: len(WIDTHS)]] == WIDTHS
    rests = {length: [128] * len(parts) if tail_in_last else parts for length, parts in FOLDED.items()}
    assert {LENGTHS[row]: widths[row] for row in range(len(WIDTHS), len(LENGTHS))} == rests
    if not tail_in_last:
        filled = sum(bucket.width * np.count_nonzero(span_of(held, bucket) < 0) for bucket in held.buckets)
        assert slots_of(matrix.row_lengths, widths_up_to(128, thirds=True)) == held.stored - filled


def span_of(held: HybFormat, bucket: Bucket) -> NDArray[np.int32]:
    return held.rows[bucket.first : bucket.first + bucket.count]


@pytest.mark.parametrize(("partitions", "max_width"), [(1, 32), (2, 64), (3, 128)])
@pytest.mark.parametrize("matrix", matrices().values(), ids=matrices())
def test_round_trip_with_widths_between(matrix: Csr, partitions: int, max_width: int) -> None:
    assert_same(csr_of(HybFormat.from_csr(matrix, partitions, max_width, thirds=True)), matrix)


TABLE_1 = [
    ("planetoid", "cora", Orientation.A, 1, 4, 15.9),
    ("planetoid", "citeseer", Orientation.A, 1, 4, 13.0),
    ("planetoid", "pubmed", Orientation.A, 1, 32, 23.1),
    ("dgl", "ppi-train-20graphs", Orientation.A, 16, 32, 22.9),
    ("ogb", "ogbn-arxiv", Orientation.TRANSPOSED, 1, 32, 17.5),
]


@pytest.mark.parametrize(("source", "name", "orientation", "c", "width", "percent"), TABLE_1, ids=str)
def test_padding_is_that_of_the_papers_table_1(
    source: str, name: str, orientation: Orientation, c: int, width: int, percent: float, mirror: Path
) -> None:
    spec = MatrixSpec(source=source, name=name, orientation=orientation)
    matrix = load_matrix(spec, Cache(mirror=mirror), seed=0).csr
    held = HybFormat.from_csr(matrix, c, width, tail_in_last=True)
    assert 100 * (1 - held.nnz / held.stored) == pytest.approx(percent, abs=0.5)
