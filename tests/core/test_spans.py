"""Spans against slow loops, empty ones included."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.core.spans import numbered, offsets, openings

LENGTHS = [[], [0], [3], [0, 2, 0, 0, 3, 1, 0]]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_offsets_are_sums_of_what_is_before(lengths: list[int], dtype: type) -> None:
    bounds = offsets(np.array(lengths, np.int64), dtype)
    assert bounds.dtype == dtype
    assert bounds.tolist() == [sum(lengths[:at]) for at in range(len(lengths) + 1)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_elements_are_numbered_within_their_spans(lengths: list[int]) -> None:
    span, number = numbered(np.array(lengths, np.int32))
    expected = [(at, one) for at, length in enumerate(lengths) for one in range(length)]
    assert list(zip(span.tolist(), number.tolist(), strict=True)) == expected


@pytest.mark.parametrize("values", [[], [7], [7, 7, 3, 3, 3, 7]], ids=str)
def test_what_differs_from_the_one_before_opens(values: list[int]) -> None:
    expected = [at == 0 or values[at] != values[at - 1] for at in range(len(values))]
    assert openings(np.array(values, np.int32)).tolist() == expected
