"""Kernels that use barriers, warps, shared memory, atomics, async copies and the matrix unit as they should."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.core.enums import DType
from spmark.impls.runtime.template import C_TYPES

RANDOM = np.random.default_rng(20)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_tree_sum(good):
    values, sums = floats(5, 128), np.full(5, np.nan, np.float32)
    good("tree_sum<128>", [values, sums], block=128, grid=5)
    np.testing.assert_allclose(sums, values.sum(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 4, 8, 32])
@pytest.mark.parametrize("block", [(96, 1, 1), (8, 12, 1)])
def test_group_sums(good, width, block):
    values, sums = floats(96), floats(96)
    good(f"group_sum<{width}>", [values, sums], block=block)
    groups = values.reshape(-1, width)
    np.testing.assert_allclose(sums.reshape(-1, width), groups.sum(axis=1, keepdims=True).repeat(width, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("int", np.int32), ("float", np.float32), ("double", np.float64), ("long long", np.int64), ("half", np.float16)],
)
def test_shuffles(good, name, dtype):
    values = (RANDOM.standard_normal(32) * 1000).astype(dtype)
    result = np.zeros((6, 32), dtype)
    good(f"shuffles<{name}>", [values, result])
    lane = np.arange(32)
    sources = [
        lane * 7 % 32,
        np.where(lane + 3 < 32, lane + 3, lane),
        np.where(lane >= 3, lane - 3, lane),
        lane ^ 5,
        lane // 8 * 8 + 2,
        np.where(lane % 8 + 2 < 8, lane + 2, lane),
    ]
    np.testing.assert_array_equal(result, values[np.stack(sources)])


def test_votes(good):
    values = RANDOM.integers(0, 10, 32).astype(np.int32)
    values[3] = 9
    result = np.zeros((4, 32), np.uint32)
    good("votes", [values, result])
    bits = np.uint64(1) << np.arange(32, dtype=np.uint64)
    expected = [bits[values > 4].sum(), 1, 1, 1]
    for row, wanted in zip(result, expected, strict=True):
        np.testing.assert_array_equal(row, np.broadcast_to(wanted, 32))


def test_atomics(good):
    values = RANDOM.integers(3, 17, 1000).astype(np.int32)
    bins, extremes = np.zeros(20, np.int32), np.array([99, -99, -1, 7], np.int32)
    total, pairs = np.zeros(1, np.float32), np.zeros(4, np.float32)
    good("atomics", [values, np.int32(1000), bins, extremes, total, pairs], block=64, grid=3)
    np.testing.assert_array_equal(bins, np.bincount(values, minlength=20))
    np.testing.assert_array_equal(extremes, [values.min(), values.max(), 5, 8])
    assert total[0] == values.sum()
    np.testing.assert_array_equal(pairs, values.sum() * np.arange(4))


def test_block_scan(good):
    values, result = RANDOM.integers(-50, 50, 256).astype(np.int32), np.zeros(256, np.int32)
    good("block_scan<256>", [values, result], block=256)
    np.testing.assert_array_equal(result, values.cumsum())


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("dtype", DType)
def test_loads_and_stores_of_every_width(good, dtype, n):
    count = 40 * n
    values, result = dtype.stored(floats(count)), np.full((3, count), dtype.nan, dtype.numpy)
    scaled = np.full(count, np.nan, np.float32)
    good(f"copies<{C_TYPES[dtype]}, {n}>", [values, result, scaled, np.int32(count)], grid=2)
    np.testing.assert_array_equal(result, np.stack([values] * 3))
    np.testing.assert_array_equal(scaled, 2 * dtype.numbers(values).astype(np.float32))


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_double_buffered_async_copies(good, threads, tiles):
    tile = 4 * threads
    valid = tiles * tile - 8  # the last eight floats are zero-filled and never read
    values, result = floats(valid), np.full(tile, np.nan, np.float32)
    good(f"double_buffer<{threads}>", [values, result, np.int32(tiles), np.int32(valid)], block=threads)
    padded = np.append(values, np.zeros(8, np.float32)).reshape(tiles, tile)
    np.testing.assert_allclose(result, np.roll(padded, -4, axis=1).sum(axis=0), atol=1e-5)


@pytest.mark.parametrize(("name", "dtype"), [("float", np.float32), ("int", np.int32)])
def test_static_and_dynamic_shared_memory_together(good, name, dtype):
    values, result = (floats(64) * 100).astype(dtype), np.zeros(64, dtype)
    good(f"static_and_dynamic<{name}, 64>", [values, result], block=64, shared_bytes=64 * 4)
    np.testing.assert_array_equal(result, values[::-1] + np.arange(64).astype(dtype) % 8)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_mma_of_16_bits(good, dtype):
    a, b, out = dtype.stored(floats(16, 16)), dtype.stored(floats(16, 8)), floats(16, 8)
    expected = out + dtype.numbers(a).astype(np.float64) @ dtype.numbers(b).astype(np.float64)
    good(f"mma_16_bits<{C_TYPES[dtype]}>", [a, b, out])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def test_mma_of_tf32(good):
    a, b, out = floats(16, 8), floats(8, 8), floats(16, 8)
    expected = out + tf32(a).astype(np.float64) @ tf32(b).astype(np.float64)
    good("mma_tf32", [a, b, out])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("transposed", [True, False])
def test_matrix_fragments(good, transposed):
    matrices, found = floats(4, 8, 8).astype(np.float16), np.zeros((4, 32, 2), np.float16)
    good(f"matrix_fragments<{str(transposed).lower()}>", [matrices, found])
    # Lane 4 g + t holds elements 2t and 2t + 1 of column g, or of row g, in row-major order of an 8 x 8 matrix.
    expected = (matrices.swapaxes(1, 2) if transposed else matrices).reshape(4, 32, 2)
    np.testing.assert_array_equal(found, expected)


def tf32(values: np.ndarray) -> np.ndarray:
    """Round to ten bits of mantissa, ties away from zero, by arithmetic instead of bits."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2048 + np.copysign(0.5, mantissa)) / 2048, exponent).astype(np.float32)


def test_to_tf32_rounds_ties_away_and_keeps_what_is_not_finite(good):
    ties = np.float32([1 + 2**-11, -1 - 2**-11, 1 + 3 * 2**-11, 2**-20 * (1 + 2**-11)])
    values = np.concatenate([ties, floats(252)])
    bits = np.zeros(256, np.uint32)
    good("round_tf32", [values, bits, np.int32(256)], block=256)
    np.testing.assert_array_equal(bits.view(np.float32), tf32(values))
    special = np.float32([np.inf, -np.inf, np.nan, -0.0])
    good("round_tf32", [special, bits, np.int32(4)])
    np.testing.assert_array_equal(bits[:4], special.view(np.uint32))


def test_every_half_widens_as_in_numpy(good):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    result = np.zeros(65536, np.float32)
    good("widen<half>", [halves, result, np.int32(65536)], block=1024, grid=64)
    np.testing.assert_array_equal(result, halves.astype(np.float32))
    number = ~np.isnan(halves)
    np.testing.assert_array_equal(np.signbit(result[number]), np.signbit(halves[number]))


def test_floats_narrow_to_the_nearest_half(good):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)].astype(np.float32)
    ends = np.sort(finite)
    ties = ((ends[1:].astype(np.float64) + ends[:-1]) / 2).astype(np.float32)  # exact: halves are 13 bits short
    edges = np.float32([65519.996, 65520, 1e30, -1e30, np.inf, -np.inf, np.nan, 2**-25, 2**-26, 1e-45, -1e-45, -0.0])
    anything = RANDOM.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([finite, ties, np.nextafter(ties, np.float32(1e9)), edges, anything])
    result = np.zeros(len(values), np.float16)
    good("narrow<half>", [values, result, np.int32(len(values))], block=1024, grid=-(-len(values) // 1024))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        expected = values.astype(np.float16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(result.view(np.uint16)[number], expected.view(np.uint16)[number])
    assert np.isnan(result[~number]).all()


def test_every_thread_of_a_three_dimensional_grid_runs_once(good):
    grid, block = (2, 3, 2), (3, 2, 2)
    result = np.full((2, 3, 2, 2, 2, 3), -1, np.int64)
    good("indices", [result], block=block, grid=grid)
    expected = np.fromfunction(
        lambda bz, by, bx, z, y, x: bz * 100000 + by * 10000 + bx * 1000 + z * 100 + y * 10 + x, result.shape, dtype=int
    )
    np.testing.assert_array_equal(result, expected)


def test_bfloat16_widens_and_narrows_as_on_the_host(good):
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    good("widen<bfloat16>", [bits, wide, np.int32(65536)], block=1024, grid=64)
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    finite = wide[np.isfinite(wide)]
    below, above = (np.nextafter(finite, np.float32(end)) for end in (-np.inf, np.inf))
    ties = (finite.view(np.uint32) | 0x8000).view(np.float32)  # half way to the next of larger magnitude
    anything = RANDOM.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([finite, below, above, ties, np.nextafter(ties, np.float32(0)), anything, wide])
    result = np.zeros(len(values), np.uint16)
    good("narrow<bfloat16>", [values, result, np.int32(len(values))], block=1024, grid=-(-len(values) // 1024))
    number = ~np.isnan(values)
    np.testing.assert_array_equal(result[number], DType.BFLOAT16.stored(values)[number])
    assert np.isnan(DType.BFLOAT16.numbers(result[~number])).all()
