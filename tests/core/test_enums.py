"""What is known of the types of elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from spmark.impls.core.enums import DType

NARROW = [dtype for dtype in DType if dtype.narrow]
BITS = np.arange(65536, dtype=np.uint16)
with np.errstate(invalid="ignore"):
    EVERY = {dtype: dtype.numbers(BITS.view(dtype.numpy)).astype(np.float64) for dtype in NARROW}
"""Every number of a type of 16 bits, NaN and infinities among them, in the order of their bits."""


@pytest.mark.parametrize("dtype", NARROW)
def test_digits_and_the_least_number_are_those_of_the_bits(dtype: DType) -> None:
    positive = EVERY[dtype][: 0x7C00 if dtype is DType.FLOAT16 else 0x7F80]
    assert positive[1] == dtype.least
    at = int(np.flatnonzero(positive == 1)[0])
    assert positive[at + 1] - 1 == 2.0 ** (1 - dtype.digits)
    assert np.isnan(dtype.numbers(np.array([dtype.nan]))).all()
    assert dtype.itemsize == dtype.numpy.itemsize == 2


@given(st.sampled_from(NARROW), arrays.arrays(np.float32, (4, 5), elements=st.floats(width=32)))
def test_rounding_takes_the_nearest_number_and_the_even_one_of_two(dtype: DType, values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        stored = dtype.stored(values)
    assert stored.dtype == dtype.numpy
    assert stored.shape == values.shape
    found = dtype.numbers(stored)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    np.testing.assert_array_equal(dtype.stored(found.astype(np.float32)), stored)
    every = np.unique(EVERY[dtype][np.isfinite(EVERY[dtype])])
    for value, one, bits in zip(values.flat, found.flat, stored.flat, strict=True):
        if not np.isfinite(one):
            continue
        distances = np.abs(every - np.float64(value))
        assert abs(np.float64(one) - np.float64(value)) == distances.min()
        if np.count_nonzero(distances == distances.min()) == 2:
            assert int(bits.view(np.uint16)) % 2 == 0
