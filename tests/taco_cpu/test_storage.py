"""A stored level by level: exact round trips, elements where a slow walk puts them, the cap of a level."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_same, random_csr
from taco_nests import every_nest

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Csr, Op
from spmark.impls.taco_cpu.space import CSR, LEVELS, Nest, nest_of
from spmark.impls.taco_cpu.storage import store

MOST = 1 << 22
NESTS = list(every_nest(Op.SPMM).items())


@st.composite
def csrs(draw: st.DrawFn) -> Csr:
    """Draw a matrix whose values hold zeros and a subnormal: padding must be told from them by position."""
    num_rows, num_cols = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    lengths = rng.integers(0, draw(st.integers(0, num_cols)) + 1, num_rows)
    matrix = random_csr(num_rows, num_cols, lengths.tolist(), int(rng.integers(2**31)))
    values = matrix.values.copy()
    special = rng.random(values.size) < 0.3
    values[special] = rng.choice(np.array([0.0, -0.0, 1e-42], np.float32), int(special.sum()))
    return replace(matrix, values=values)


def stored(matrix: Csr, nest: Nest, splits: tuple[int, int], most_bytes: int = MOST) -> dict[str, np.ndarray]:
    return store(matrix, nest, dict(zip(("isplit", "ksplit"), splits, strict=True)), most_bytes)


def given_back(arrays: dict[str, np.ndarray], matrix: Csr, nest: Nest, splits: tuple[int, int]) -> Csr:
    """Read each element's coordinates on the way from the last level up; only the shape is taken from the matrix."""
    position = places = np.flatnonzero(arrays["entries"] >= 0)
    found = {loop: np.zeros(places.size, np.int64) for loop in LEVELS}
    lengths = dict(zip("ik", matrix.shape, strict=True))
    for loop in reversed(nest.levels):
        split = dict(zip("ik", splits, strict=True))[loop[0]]
        if loop in nest.compressed:
            found[loop] = arrays[f"crd_{loop}"][position].astype(np.int64)
            position = np.searchsorted(arrays[f"pos_{loop}"], position, side="right") - 1
        else:
            extent = split if loop.endswith("0") else -(-lengths[loop[0]] // split)
            position, found[loop] = np.divmod(position, extent)
    rows, columns = (found[f"{x}1"] * split + found[f"{x}0"] for x, split in zip("ik", splits, strict=True))
    order = np.argsort(arrays["entries"][places])
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=matrix.num_rows))).astype(np.int32)
    return Csr(matrix.shape, indptr, columns[order].astype(np.int32), arrays["values"][places][order])


def walked(matrix: Csr, nest: Nest, splits: tuple[int, int]) -> list[int]:
    """Give the place in CSR order of every stored element, -1 for padding, in the slow, obvious way."""
    extents, coordinates = {}, {}
    for index, along, length, split in zip(
        "ik", (matrix.rows_of_entries(), matrix.indices), matrix.shape, splits, strict=True
    ):
        extents |= {f"{index}1": -(-length // split), f"{index}0": split}
        coordinates |= {f"{index}1": along // split, f"{index}0": along % split}

    def below(entries: Sequence[int], levels: Sequence[str]) -> Iterator[int]:
        if not levels:
            yield entries[0] if entries else -1
            return
        own = {at: int(coordinates[levels[0]][at]) for at in entries}
        for coordinate in sorted(set(own.values())) if levels[0] in nest.compressed else range(extents[levels[0]]):
            yield from below([at for at in entries if own[at] == coordinate], levels[1:])

    return list(below(range(matrix.nnz), nest.levels))


@given(csrs(), st.sampled_from(NESTS))
def test_a_matrix_comes_back_and_stands_where_a_walk_puts_it(matrix: Csr, case: tuple[Nest, Config]) -> None:
    nest, config = case
    splits = (config["isplit"], config["ksplit"])
    arrays, places = stored(matrix, nest, splits), np.array(walked(matrix, nest, splits), np.int64)
    assert_same(given_back(arrays, matrix, nest, splits), matrix)
    np.testing.assert_array_equal(arrays["entries"], places)
    values = np.where(places < 0, np.float32(0), np.append(matrix.values, np.float32(0))[places])
    np.testing.assert_array_equal(arrays["values"].view(np.uint32), values.astype(np.float32).view(np.uint32))
    assert all(array.dtype in (np.int32, np.float32) and array.flags.c_contiguous for array in arrays.values())


def test_an_uncompressed_level_beyond_the_cap_is_refused_before_it_is_allocated() -> None:
    matrix = random_csr(5000, 3000, [1] * 5000)
    dense = nest_of(Op.SPMM, {**CSR, "formats": "UUUU"})
    tracemalloc.start()
    with pytest.raises(
        BuildError,
        match=r"levels i1u k1u of a 5000 x 3000 matrix with 5,000 non-zeros: expected the uncompressed level k1 to "
        r"take at most 4,194,304 bytes, found 60,000,000: compress it",
    ):
        stored(matrix, dense, (1, 1))
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()
    assert stored(matrix, dense, (1, 1), 60_000_000)["values"].size == 15_000_000
