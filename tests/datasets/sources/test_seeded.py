"""Seeded matrices: six kinds that differ in what formats are told apart by, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.datasets.cache import Cache
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.seeded import EACH, KINDS, Seeded, SeededSmall
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr

CACHE = Cache()
# The smallest of each kind's first numbers.
SMALL = {"power_law": "02", "banded": "01", "blocks": "00", "mesh": "00", "random": "02", "hyper_sparse": "02"}


def load(kind: str) -> RawMatrix:
    return Seeded().load(f"{kind}_{SMALL[kind]}", {}, CACHE)


def test_there_are_at_least_four_hundred() -> None:
    names = Seeded().names(CACHE)
    assert len(set(names)) == EACH * len(KINDS) >= 400
    assert {name.rpartition("_")[0] for name in names[: len(KINDS)]} == set(KINDS), "the kinds take turns"


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_is_canonical_and_the_same_every_time(kind: str) -> None:
    first, again = load(kind), load(kind)
    matrix = Csr.checked(first.shape, first.indptr, first.indices, np.ones(first.indices.size))
    assert matrix.num_rows == matrix.num_cols >= 2000
    assert matrix.nnz > 0
    assert np.array_equal(first.indices, again.indices)
    assert np.array_equal(first.indptr, again.indptr)


def test_kinds_are_what_they_are_called() -> None:
    lengths = {kind: np.diff(load(kind).indptr) for kind in KINDS}
    assert lengths["power_law"].max() > 20 * lengths["power_law"].mean()
    assert lengths["mesh"].max() <= 27
    assert (lengths["hyper_sparse"] == 0).mean() > 0.6
    band = load("banded")
    rows = np.repeat(np.arange(band.shape[0]), np.diff(band.indptr))
    assert np.abs(rows - band.indices).max() <= 200
    blocks = load("blocks")
    neighbours = np.diff(blocks.indices)[np.diff(np.repeat(np.arange(blocks.shape[0]), np.diff(blocks.indptr))) == 0]
    assert (neighbours == 1).mean() > 0.2


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(DatasetError, match="such as"):
        Seeded().load("banded_99", {}, CACHE)


def test_smaller_ones_are_other_matrices() -> None:
    names = SeededSmall().names(CACHE)
    assert len(set(names)) == 1002
    assert [name.rpartition("_")[0] for name in names[:6]] == list(KINDS)
    found = [SeededSmall().load(name, {}, CACHE) for name in names[:12]]
    assert all(2_000 <= one.shape[0] <= 50_000 for one in found)
    assert len({one.indices.size for one in found}) == 12
    assert SeededSmall().load("random_02", {}, CACHE).shape != load("random").shape
