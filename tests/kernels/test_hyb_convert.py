"""Conversion where the matrix is used gives what the host gives, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.kernels.hyb_spmm import HybConverter
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target

FORMS = [(1, 1), (1, 32), (3, 2), (3, 64), (16, 8), (2, 8192)]


def special_csr() -> Csr:
    """Give a matrix with stored zeros of both signs, subnormals and the largest values of float16."""
    matrix = random_csr(60, 90, np.random.default_rng(5).integers(0, 90, 60).tolist())
    values = matrix.values.copy()
    values[::5] = np.resize(np.array([0.0, -0.0, 6e-8, 65504.0, -1e-7], np.float32), values[::5].size)
    return Csr.checked(matrix.shape, matrix.indptr, matrix.indices, values)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("matrix", [special_csr(), *matrices().values()], ids=["special", *matrices()])
def test_the_same_bits_as_the_host(matrix: Csr, dtype: DType) -> None:
    converter = HybConverter(Problem(Op.SPMM, matrix, 8, dtype), open_target(find("host-simt")))
    for partitions, max_width in FORMS:
        expected = HybFormat.from_csr(matrix, partitions, max_width)
        layout, (indices, values) = converter.convert(partitions, max_width)
        assert layout.buckets == expected.buckets
        for name in ("rows", "starts", "lengths"):
            np.testing.assert_array_equal(getattr(layout, name), getattr(expected, name), name)
        np.testing.assert_array_equal(indices, expected.indices)
        assert values.dtype == dtype.numpy
        np.testing.assert_array_equal(values.view(np.uint8), expected.values.astype(dtype.numpy).view(np.uint8))
    layout, (indices, _) = converter.convert(1, 64, thirds=True)
    expected = HybFormat.from_csr(matrix, 1, 64, thirds=True)
    assert layout.buckets == expected.buckets
    np.testing.assert_array_equal(indices, expected.indices)
    assert set(converter.phases_s) == {"compile", "upload", "convert"}


def test_illegal_forms_are_refused() -> None:
    converter = HybConverter(Problem(Op.SPMM, special_csr(), 8), open_target(find("host-simt")))
    with pytest.raises(ValueError, match="power of two, found 12"):
        converter.convert(1, 12)
    with pytest.raises(ValueError, match="at least one column partition"):
        converter.convert(0, 8)
