"""`spmark.torch.RelationalMatrix` against dense matrices, and its gradients against differences."""

from __future__ import annotations

import copy
import pickle
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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give a list that grows with each call of the operator."""
    from spmark.impls.operator import relations

    calls, convolve = [], relations.convolve
    monkeypatch.setattr(relations, "convolve", lambda *given: (calls.append(given), convolve(*given))[1])
    return calls


@pytest.mark.parametrize("device", DEVICES)
def test_a_product_that_records_nothing_is_no_operator_s(device: str, asked: list[Any]) -> None:
    from spmark.torch import RelationalMatrix

    matrix = relational_matrices()["hub"]
    a, w = RelationalMatrix(matrix), torch.nn.Parameter(torch.randn(matrix.relations, 8, 4, device=device))
    x, values = torch.randn(matrix.num_cols, 8, device=device), a.values.to(device)
    expected = torch.einsum("rik,kc,rcd->id", dense(matrix, a.values).to(device), x, w)
    with torch.no_grad():
        found = [a.rgms(x, w), a.rgms(x.clone().requires_grad_(), w, values)]
    with torch.inference_mode():
        found.append(a.rgms(x.clone(), w))
    found.append(a.rgms(x, w.detach()))
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        found.append(a.rgms(x, w))
    assert not asked
    for one in found:
        assert not one.requires_grad
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_what_records_traces_or_transforms_sees_the_operator(device: str, asked: list[Any]) -> None:
    from torch.autograd import forward_ad
    from torch.utils._python_dispatch import TorchDispatchMode

    from spmark.torch import RelationalMatrix

    matrix, seen = relational_matrices()["one_relation"], []
    a, new = RelationalMatrix(matrix), {"device": device, "dtype": torch.float64}
    x, w = torch.randn(matrix.num_cols, 4, **new), torch.randn(1, 4, 2, **new)
    expected, values = a.rgms(x, w), a.values.to(**new)

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Subclass(torch.Tensor):
        pass

    assert a.rgms(x, w.clone().requires_grad_()).requires_grad
    assert a.rgms(x, w, values.requires_grad_()).requires_grad
    with forward_ad.dual_level():
        tangent = torch.randn_like(x)
        found = forward_ad.unpack_dual(a.rgms(forward_ad.make_dual(x, tangent), w))
        torch.testing.assert_close(found.primal, expected)
        torch.testing.assert_close(found.tangent, torch.ops.spmark.convolve(None, tangent, w, a.handle))
    with torch.no_grad(), Seeing():
        a.rgms(x, w)
    assert torch.ops.spmark.convolve.default in seen
    assert type(a.rgms(x.as_subclass(Subclass), w)) is Subclass
    with torch.overrides.BaseTorchFunctionMode():
        a.rgms(x, w)
    several = torch.func.vmap(a.rgms, in_dims=(0, None))(torch.stack([x, 2 * x]), w)
    torch.testing.assert_close(several, torch.stack([expected, 2 * expected]))
    assert len(asked) == 7
    traced = torch.jit.trace(lambda x: a.rgms(x, w), x, check_trace=False)
    assert "spmark::convolve" in str(traced.graph)
    asked.clear()  # compiled programs hold operators, not calls of the list
    compiled = torch.compile(lambda x: a.rgms(x, w) * 2, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), 2 * expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("records", [False, True])
def test_errors_are_the_operator_s(records: bool, device: str) -> None:
    from spmark.impls.core.errors import BuildError
    from spmark.torch import RelationalMatrix

    matrix = relational_matrices()["one_relation"]
    a, new = RelationalMatrix(matrix), {"device": device, "requires_grad": records}
    a.in_order = (("rgms_rows", {}),)
    with pytest.raises(BuildError, match="expected one of rgms_rows to take the problem"):
        a.rgms(torch.randn(matrix.num_cols, 4, **new), torch.randn(1, 4, 2, **new))


def test_copies_share_a_matrix_and_it_travels() -> None:
    from spmark.torch import RelationalMatrix

    a = RelationalMatrix(relational_matrices()["hub"])
    x, w = torch.randn(a.matrix.num_cols, 4), torch.randn(a.matrix.relations, 4, 2)
    expected = a.rgms(x, w)
    assert copy.deepcopy(a) is a
    assert torch.equal(pickle.loads(pickle.dumps(a)).rgms(x, w), expected)


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
