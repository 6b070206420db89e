"""`spmark.torch.RelationalMatrix` against dense matrices, and its gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relational import drawn, relational_matrices

from spmark.impls.core.errors import OperandError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = {"float64": 1e-6, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
"""Tolerances: A's values are float32."""


def dense(matrix: Any, values: Any) -> Any:
    """Give A, (R, I, K), with these values."""
    relation, rows, cols = (torch.from_numpy(each.astype(np.int64)) for each in matrix.edges)
    found = values.new_zeros(matrix.relations, matrix.num_rows, matrix.num_cols)
    return found.index_put((relation, rows, cols), values)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", relational_matrices())
@pytest.mark.parametrize("device", DEVICES)
def test_products_and_gradients_are_those_of_dense_matrices(name: str, dtype: str, given: bool, device: str) -> None:
    from spmark.torch import RelationalMatrix

    torch.manual_seed(0)
    matrix = relational_matrices()[name]
    a, kind = RelationalMatrix(matrix), getattr(torch, dtype)
    values = torch.randn(matrix.nnz) if given else a.values
    x, w, g = (
        torch.randn(*shape) for shape in ((matrix.num_cols, 16), (matrix.relations, 16, 8), (matrix.num_rows, 8))
    )
    rounded = [each.to(kind).double().requires_grad_() for each in (values, x, w)]
    expected = torch.einsum("rik,kc,rcd->id", dense(matrix, rounded[0]), *rounded[1:])
    expected.backward(g.to(kind).double())
    own = [each.detach().to(device, kind).requires_grad_() for each in (values, x, w)]
    found = a.rgms(own[1], own[2], own[0] if given else None)
    found.backward(g.to(device, kind))
    for mine, other in ((found, expected), *((one.grad, two.grad) for one, two in zip(own, rounded, strict=True))):
        if mine is not None:  # values that are not given have no gradient
            scale = max([1.0, *other.detach().abs().flatten().tolist()])
            torch.testing.assert_close(mine.cpu().double(), other, rtol=0, atol=DTYPES[dtype] * scale)


@pytest.mark.parametrize("device", DEVICES)
def test_every_product_has_gradients_and_gradients_of_gradients(device: str) -> None:
    from spmark.impls.operator.torchops import convolve, correlate, project
    from spmark.torch import RelationalMatrix

    matrix = drawn(5, 6, [7, 0, 4], hub=3)
    a, new = RelationalMatrix(matrix), {"dtype": torch.float64, "device": device, "requires_grad": True}
    values, x = torch.randn(matrix.nnz, **new), torch.randn(6, 2, **new)
    w, y = torch.randn(3, 2, 3, **new), torch.randn(5, 3, **new)
    for product, tensors in ((convolve, (values, x, w)), (correlate, (values, x, y)), (project, (x, w, y))):
        assert torch.autograd.gradcheck(product, (*tensors, a.handle))
        assert torch.autograd.gradgradcheck(product, (*tensors, a.handle))


@pytest.mark.full  # importing the compiler takes half a minute
@pytest.mark.parametrize("device", DEVICES)
def test_operators_are_what_they_say(device: str) -> None:
    from spmark.impls.operator.torchops import convolve, correlate, project
    from spmark.torch import RelationalMatrix

    matrix = relational_matrices()["hub"]
    a, new = RelationalMatrix(matrix), {"device": device, "requires_grad": True}
    values, x = torch.randn(matrix.nnz, **new), torch.randn(matrix.num_cols, 4, **new)
    w, y = torch.randn(matrix.relations, 4, 3, **new), torch.randn(matrix.num_rows, 3, **new)
    for product, tensors in ((convolve, (values, x, w)), (convolve, (None, x, w)), (project, (x, w, y))):
        torch.library.opcheck(product, (*tensors, a.handle))
    torch.library.opcheck(correlate, (values, x, y, a.handle))


def test_the_transpose_has_values_in_its_own_order() -> None:
    from spmark.torch import RelationalMatrix

    matrix = relational_matrices()["hub"]
    a, values = RelationalMatrix(matrix), torch.randn(matrix.nnz)
    assert a.T.T is a
    torch.testing.assert_close(dense(a.T.matrix, a.turned(values)), dense(matrix, values).transpose(1, 2))


def test_what_does_not_fit_is_refused() -> None:
    from spmark.torch import RelationalMatrix

    a = RelationalMatrix(relational_matrices()["one_relation"])
    x, w = torch.randn(30, 4), torch.randn(1, 4, 2)
    with pytest.raises(OperandError, match=r"features of 30 rows.* found \(1, 4, 2\) and \(29, 4\)"):
        a.rgms(x[1:], w)
    with pytest.raises(OperandError, match=r"weights of 1 relations.* found \(2, 4, 2\) and \(30, 4\)"):
        a.rgms(x, torch.randn(2, 4, 2))
    with pytest.raises(OperandError, match=r"expected weights of torch.float32 on cpu.* found torch.float64"):
        a.rgms(x, w.double())
    with pytest.raises(OperandError, match=r"expected values of shape \(\d+,\), found \(3,\)"):
        a.rgms(x, w, torch.randn(3))
    assert repr(a).startswith("<spmark.torch.RelationalMatrix 40 x 30, ")
