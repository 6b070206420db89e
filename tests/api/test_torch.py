"""Products for PyTorch: gradients of every order, torch.compile, autocast, and a sparse linear layer; on the CPU."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.core.errors import BuildError, DeviceError, OperandError, ProblemError, SweepError
from spmark.impls.core.problem import Op
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.operator.sparse import names_with

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.nn.utils import prune  # noqa: E402 (needs PyTorch)

from spmark.torch import SparseLinear, SparseMatrix  # noqa: E402 (needs PyTorch)

HOW: dict[str, Any] = {"use": "scipy_cpu"}
"""One implementation, so that nothing is raced."""


def drawn(*shape: int, dtype: Any = torch.float64, grad: bool = True) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


@pytest.fixture
def small() -> Any:
    """Give a 7 x 5 CSR of float64 with an empty row and an empty column."""
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((7, 5)) * (rng.random((7, 5)) < 0.5)
    dense[2], dense[:, 3] = 0, 0
    return sparse.csr_array(dense)


@pytest.fixture
def matrix(small: Any) -> Any:
    return SparseMatrix(small, **HOW)


def dense_of(matrix: Any, small: Any, values: Any) -> Any:
    """Give A as a dense tensor that depends on its values."""
    at = small.tocoo()
    empty = torch.zeros(matrix.shape, dtype=values.dtype)
    return empty.index_put((torch.tensor(at.row).long(), torch.tensor(at.col).long()), values)


def test_a_product_that_records_nothing_is_no_operator_s(matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from spmark.impls.operator import pytorch

    b, values, asked, spmm = drawn(5, 3), matrix.values, [], pytorch.spmm
    expected = matrix.spmm(b).detach()
    monkeypatch.setattr(pytorch, "spmm", lambda *given: (asked.append(given), spmm(*given))[1])
    with torch.no_grad():
        found = [matrix.spmm(b), matrix.spmm(b, values.requires_grad_())]
    found.append(matrix.spmm(b.detach()))
    assert not asked
    for one in found:
        assert not one.requires_grad
        torch.testing.assert_close(one, expected)
    assert matrix.spmm(b).requires_grad
    assert matrix.spmm(b.detach(), values).requires_grad
    with torch.autograd.forward_ad.dual_level():
        matrix.spmm(torch.autograd.forward_ad.make_dual(b.detach(), b.detach()))
    torch.func.vmap(matrix.spmm)(b.detach()[None])
    assert len(asked) == 4


def test_gradients_of_spmm(matrix: Any) -> None:
    b, values = drawn(5, 3), matrix.values.requires_grad_()
    assert torch.autograd.gradcheck(matrix.spmm, (b,), check_forward_ad=True)
    assert torch.autograd.gradcheck(matrix.spmm, (b, values), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(matrix.spmm, (b, values), check_fwd_over_rev=True)


def test_gradients_of_sddmm(matrix: Any) -> None:
    x, y, values = drawn(7, 3), drawn(5, 3), matrix.values.requires_grad_()
    assert torch.autograd.gradcheck(matrix.sddmm, (x, y), check_forward_ad=True)
    assert torch.autograd.gradcheck(matrix.sddmm, (x, y, values), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(matrix.sddmm, (x, y, values), check_fwd_over_rev=True)


def test_forward_mode_of_torch_func(matrix: Any, small: Any) -> None:
    dense, b, x = torch.tensor(small.toarray()), drawn(5, 3, grad=False), drawn(7, 3, grad=False)
    c, moved = torch.func.jvp(matrix.spmm, (b, matrix.values), (2 * b, 3 * matrix.values))
    assert torch.allclose(c, dense @ b)
    assert torch.allclose(moved, 5 * c), "linear in each"
    assert torch.allclose(torch.func.jvp(matrix.sddmm, (x, b), (x, b))[1], 2 * matrix.sddmm(x, b))
    whole = torch.func.jacfwd(matrix.spmm)(b)
    assert torch.allclose(whole, torch.einsum("ik,jl->ijkl", dense, torch.eye(3).double()))


def test_a_product_that_follows_no_tangent_refuses_one(matrix: Any, small: Any) -> None:
    b, out = drawn(5, 3, grad=False), torch.empty(7, 3, dtype=torch.float64)
    op = spmark.compile(small, width=3, device="cpu", **HOW)
    op(b)
    for product in (op, lambda b: spmark.spmm(small, b), lambda b: matrix.spmm(b, out=out)):
        with pytest.raises(ProblemError, match="found one that requires it or has a tangent"):
            torch.func.jvp(product, (b,), (b,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(b, b)
            with pytest.raises(ProblemError, match="found one that requires it or has a tangent"):
                product(dual)


def test_the_softmax_of_rows(matrix: Any, small: Any) -> None:
    scores = 9 * drawn(matrix.nnz)
    none, at = torch.tensor(small.toarray() == 0), small.tocoo()
    for given in (scores, scores.float(), scores.bfloat16()):
        dense = dense_of(matrix, small, given.double()).masked_fill(none, -torch.inf)
        expected = dense.softmax(dim=1)[at.row, at.col].to(given.dtype)
        torch.testing.assert_close(
            matrix.softmax(given), expected, rtol=4e-3 if given.dtype is torch.bfloat16 else 1e-5, atol=0
        )
    assert torch.autograd.gradcheck(matrix.softmax, (drawn(matrix.nnz),))
    assert torch.equal(
        torch.compile(matrix.softmax, fullgraph=True, backend="aot_eager")(scores), matrix.softmax(scores)
    )
    with pytest.raises(OperandError, match=r"expected scores of shape \(\d+,\), found \(3,\)"):
        matrix.softmax(torch.ones(3))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ProblemError, match="found one that has it"):
        matrix.softmax(torch.autograd.forward_ad.make_dual(scores.detach(), scores.detach()))


@pytest.mark.full
def test_operators_keep_the_rules_of_pytorch(matrix: Any) -> None:
    b, x, values = drawn(5, 3), drawn(7, 3), matrix.values.requires_grad_()
    spmm, sddmm = torch.ops.spmark.spmm.default, torch.ops.spmark.sddmm.default
    for arguments in (
        (None, b, matrix.handle, False),
        (values, b, matrix.handle, False),
        (values, x, matrix.handle, True),
    ):
        results = torch.library.opcheck(spmm, arguments)
        assert set(results.values()) == {"SUCCESS"}
    results = torch.library.opcheck(sddmm, (x, b, matrix.handle))
    assert set(results.values()) == {"SUCCESS"}


def test_operators_that_write_out_keep_the_rules_of_pytorch(matrix: Any) -> None:
    b, x, values = drawn(5, 3, grad=False), drawn(7, 3, grad=False), matrix.values
    handle, ops = matrix.handle, torch.ops.spmark
    for operator, arguments in (
        (ops.spmm_out.default, (None, b, handle, False, torch.empty_like(x))),
        (ops.spmm_out.default, (values, b, handle, False, torch.empty_like(x))),
        (ops.spmm_out.default, (values, x, handle, True, torch.empty_like(b))),
        (ops.sddmm_out.default, (x, b, handle, torch.empty_like(values))),
    ):
        assert operator._schema.is_mutable
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


def test_out_is_written_and_given_back(matrix: Any, small: Any) -> None:
    b, x, values = drawn(5, 3, grad=False), drawn(7, 3, grad=False), 2 * matrix.values
    out, at = torch.full((7, 3), torch.nan, dtype=torch.float64), torch.full((small.nnz,), torch.nan).double()
    for given in (None, values):
        before = out._version
        assert matrix.spmm(b, given, out=out) is out
        assert out._version > before, "autograd sees that out has changed"
        assert torch.equal(out, matrix.spmm(b, given))
        assert matrix.sddmm(x, b, given, out=at) is at
        assert torch.equal(at, matrix.sddmm(x, b, given))


def test_an_out_that_does_not_fit_is_refused(matrix: Any) -> None:
    b, out = drawn(5, 3, grad=False), torch.empty(7, 3, dtype=torch.float64)
    for wrong, message in (
        (out.float(), "result out: expected dtype float64, found float32"),
        (out[1:], r"result out: expected shape \(7, 3\), found \(6, 3\)"),
        (torch.empty(3, 7).double().T, "result out: expected a row-major, contiguous, aligned array"),
    ):
        with pytest.raises(OperandError, match=message):
            matrix.spmm(b, out=wrong)
    whole = torch.zeros(12, 3, dtype=torch.float64)
    with pytest.raises(OperandError, match="expected memory of its own"):
        matrix.spmm(whole[:5], out=whole[3:10])
    for given in ((drawn(5, 3), None, out), (b, matrix.values.requires_grad_(), out), (b, None, drawn(7, 3))):
        with pytest.raises(ProblemError, match=r"expected tensors without a gradient beside out, .*: leave out away"):
            matrix.spmm(given[0], given[1], out=given[2])
    with pytest.raises(ProblemError, match="expected tensors without a gradient beside out"):
        matrix.sddmm(drawn(7, 3), b, out=torch.empty(matrix.nnz, dtype=torch.float64))
    with torch.no_grad():
        assert matrix.spmm(drawn(5, 3), out=out) is out


def test_out_follows_autocast(small: Any) -> None:
    matrix, b = SparseMatrix(small.astype(np.float32), **HOW), drawn(5, 3, dtype=torch.float32, grad=False)
    with torch.autocast("cpu", torch.bfloat16):
        out = torch.empty(7, 3, dtype=torch.bfloat16)
        assert torch.equal(matrix.spmm(b, out=out), matrix.spmm(b))
        with pytest.raises(OperandError, match="result out: expected dtype bfloat16, found float32"):
            matrix.spmm(b, out=torch.empty(7, 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_that_writes_out_has_one_graph(matrix: Any) -> None:
    def product(b: Any, x: Any, out: Any, at: Any) -> Any:
        matrix.spmm(torch.relu(b), out=out)
        matrix.sddmm(x, b, out=at)
        return out.sum() + at.sum()

    b, x = drawn(5, 3, grad=False), drawn(7, 3, grad=False)
    made = [(torch.empty_like(x), torch.empty_like(matrix.values)) for _ in range(2)]
    traced = torch.compile(product, fullgraph=True, backend="aot_eager")
    assert torch.allclose(traced(b, x, *made[0]), product(b, x, *made[1]))
    for found, right in zip(*made, strict=True):
        assert torch.equal(found, right)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_graph_serves_several_matrices(small: Any) -> None:
    traced = torch.compile(lambda matrix, b: matrix.spmm(b) * 2, fullgraph=True, backend="aot_eager")
    b = drawn(5, 3, grad=False)
    for factor in (1, 2, 3):
        matrix = SparseMatrix(factor * small, **HOW)
        assert torch.allclose(traced(matrix, b), 2 * matrix.spmm(b))


def test_an_exported_program_holds_no_matrix(small: Any) -> None:
    layer, x = SparseLinear(small, **HOW), drawn(2, 5, grad=False)
    program = torch.export.export(layer, (x,)).module()
    assert torch.equal(program(x), layer(x))
    assert SparseMatrix(small, **HOW).handle != layer.matrix.handle
    del layer
    gc.collect()
    with pytest.raises(OperandError, match="expected the handle of a living SparseMatrix"):
        program(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_results_and_gradients_are_those_of_dense_matrices(dtype: Any, small: Any) -> None:
    rounded = torch.tensor(small.toarray()).to(dtype)
    matrix = SparseMatrix(rounded.to_sparse(), **HOW)
    b, values = drawn(5, 3, dtype=dtype), matrix.values.requires_grad_()
    c = matrix.spmm(b, values)
    assert c.dtype is dtype
    weight = drawn(7, 3, dtype=dtype, grad=False)
    (c * weight).sum().backward()
    wide_b, wide_values = b.detach().double().requires_grad_(), values.detach().double().requires_grad_()
    expected = dense_of(matrix, small, wide_values) @ wide_b
    (expected * weight.double()).sum().backward()
    limit = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
    for found, right in ((c, expected), (b.grad, wide_b.grad), (values.grad, wide_values.grad)):
        assert found.dtype is dtype
        assert torch.allclose(found.double(), right, rtol=limit, atol=limit)


def laid_out(kind: str, rows: int, cols: int) -> Any:
    """Give a matrix of numbers in memory that a plan does not take as it is."""
    numbers = torch.arange(1.0, rows * cols + 1, dtype=torch.float64)
    if kind == "expanded":
        return numbers[:cols].expand(rows, cols)
    if kind == "strided":
        return numbers.reshape(cols, rows).T
    if kind == "gaps":
        return torch.arange(2.0 * rows * cols).double().reshape(rows, 2 * cols)[:, ::2]
    assert kind == "misaligned"
    moved = torch.empty(rows * cols + 1, dtype=torch.float64)[1:].copy_(numbers).reshape(rows, cols)
    assert moved.data_ptr() % 16
    return moved


@pytest.mark.parametrize("kind", ["expanded", "strided", "gaps", "misaligned", "sum"])
def test_gradients_of_any_strides(kind: str, matrix: Any, small: Any) -> None:
    b, values = drawn(5, 4), matrix.values.requires_grad_()
    other_b, other_values = b.detach().clone().requires_grad_(), values.detach().clone().requires_grad_()
    for c in (matrix.spmm(b, values), dense_of(matrix, small, other_values) @ other_b):
        if kind == "sum":
            c.sum().backward()
        else:
            c.backward(laid_out(kind, 7, 4))
    assert torch.allclose(b.grad, other_b.grad)
    assert torch.allclose(values.grad, other_values.grad)


@pytest.mark.parametrize("kind", ["expanded", "strided", "gaps", "misaligned"])
def test_operands_of_any_strides(kind: str, matrix: Any, small: Any) -> None:
    b, x = laid_out(kind, 5, 4), laid_out(kind, 7, 4)
    assert torch.allclose(matrix.spmm(b), torch.tensor(small @ b.numpy()))
    at = small.tocoo()
    assert torch.allclose(matrix.sddmm(x, b), (x[at.row] * b[at.col]).sum(dim=1))
    values = laid_out("gaps", matrix.nnz, 1)[:, 0]
    assert torch.allclose(matrix.spmm(b, values), dense_of(matrix, small, values) @ b)


class Ends(torch.autograd.Function):
    """The identity, whose gradient is undefined."""

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None


def test_an_undefined_gradient_is_zero(matrix: Any) -> None:
    b, x, values = drawn(5, 3), drawn(7, 3), matrix.values.requires_grad_()
    (Ends.apply(matrix.spmm(b, values)).sum() + Ends.apply(matrix.sddmm(x, b)).sum()).backward()
    for given in (b, x, values):
        assert given.grad is None or not given.grad.any()


def test_only_what_is_asked_has_a_gradient(matrix: Any) -> None:
    b = drawn(5, 3)
    matrix.spmm(b, matrix.values).sum().backward()
    assert b.grad is not None
    values = matrix.values.requires_grad_()
    matrix.spmm(drawn(5, 3, grad=False), values).sum().backward()
    assert values.grad is not None
    x = drawn(7, 3)
    assert torch.autograd.grad(matrix.sddmm(x, b.detach()).sum(), [x, b], allow_unused=True)[1] is None
    with torch.no_grad():
        assert not matrix.spmm(b).requires_grad


def test_given_values_do_not_stay(matrix: Any, small: Any) -> None:
    b = drawn(5, 3, grad=False)
    own = torch.tensor(small @ b.numpy())
    for factor in (2.0, -1.0):
        assert torch.allclose(matrix.spmm(b, factor * matrix.values), factor * own)
        assert torch.allclose(matrix.spmm(b), own)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_has_one_graph(matrix: Any, small: Any) -> None:
    def loss(b: Any, values: Any) -> Any:
        c = torch.relu(matrix.spmm(b, values))
        return (matrix.sddmm(c, b) ** 2).sum()

    inputs = [(drawn(5, width), matrix.values.requires_grad_()) for width in (3, 4)]
    traced = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for given in inputs:
        grads = torch.autograd.grad(traced(*given), given)
        for found, right in zip(grads, torch.autograd.grad(loss(*given), given), strict=True):
            assert torch.allclose(found, right)


def test_autocast_converts_and_nothing_else_does(small: Any) -> None:
    matrix = SparseMatrix(small.astype(np.float32), **HOW)
    b, values = drawn(5, 3, dtype=torch.float32), matrix.values.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        c = matrix.spmm(b, values)
        assert c.dtype is torch.bfloat16
        assert matrix.sddmm(drawn(7, 3, dtype=torch.float32), b).dtype is torch.bfloat16
    c.float().sum().backward()
    assert (b.grad.dtype, values.grad.dtype) == (torch.float32, torch.float32)
    for wrong in (b.double(), b.bfloat16()):
        with pytest.raises(OperandError, match=r"expected a tensor of torch.float32, as A's values are, found torch\."):
            matrix.spmm(wrong)
    with pytest.raises(OperandError, match="update_values: expected dtype float32, found float64"):
        matrix.spmm(b, values.double())
    with pytest.raises(OperandError, match=r"operand Y \(K, J\): expected dtype float32, found float64"):
        matrix.sddmm(drawn(7, 3, dtype=torch.float32), b.double())


def test_deterministic_algorithms(matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    b = drawn(5, 3)
    monkeypatch.setattr("spmark.impls.operator.compiled.CompiledOperator.is_deterministic", lambda self, width: False)
    matrix.spmm(b)
    try:
        torch.use_deterministic_algorithms(True)
        with pytest.raises(BuildError, match=r"expected a deterministic plan, .*: pass use=.'direct', 'rowsplit'"):
            matrix.spmm(b)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="expected a deterministic plan"):
            matrix.sddmm(drawn(7, 3), b)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.full
def test_a_gradient_outlives_the_matrix(small: Any) -> None:
    matrix, b = SparseMatrix(small, **HOW), drawn(5, 3)
    c, handle = matrix.spmm(b), matrix.handle
    del matrix
    gc.collect()
    c.sum().backward()
    assert torch.allclose(b.grad, torch.tensor(small.toarray()).T @ torch.ones(7, 3).double())
    del c
    gc.collect()
    with pytest.raises(
        OperandError, match=r"expected the handle of a living SparseMatrix or RelationalMatrix, found .*: keep it"
    ):
        torch.ops.spmark.spmm(None, b, handle, False)


def test_all_products_are_begun_before_the_first_is_planned(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    def note(name: str) -> None:
        done = getattr(CompiledOperator, name)
        monkeypatch.setattr(
            CompiledOperator, name, lambda self, width: (told.append((name, self.op)), done(self, width))
        )

    note("begin")
    note("plan")
    SparseMatrix(small, width=3, backward=True, **HOW)
    assert told == [(name, op) for name in ("begin", "plan") for op in ("spmm", "spmm", "sddmm")]


def test_widths_are_planned_at_once_where_they_are_named(small: Any) -> None:
    matrix = SparseMatrix(small, width=[3, 4], backward=True, **HOW)
    assert {kind[:2] for kind in matrix._operators.made} == {("spmm", False), ("spmm", True), ("sddmm", False)}
    assert all(one.widths == (3, 4) for one in matrix._operators.made.values())
    assert not SparseMatrix(small, **HOW)._operators.made
    matrix.plan(5, given_values=True)
    matrix.plan([3, 6])
    widths = {kind[:3]: one.widths for kind, one in matrix._operators.made.items()}
    assert widths == {
        ("spmm", False, True): (3, 4, 6),
        ("spmm", True, True): (3, 4),
        ("sddmm", False, True): (3, 4),
        ("spmm", False, False): (5,),
    }
    layer = SparseLinear(small, width=2, **HOW)
    planned = {kind: one.widths for kind, one in layer.matrix._operators.made.items()}
    layer(drawn(2, 5)).sum().backward()
    later = {kind: one.widths for kind, one in layer.matrix._operators.made.items()}
    assert later == planned, "nothing is planned later"


def test_what_an_implementation_lacks_is_left_to_others(small: Any) -> None:
    assert names_with(["direct", "rowsplit"], Op.SPMM) == ["direct", "rowsplit"]
    assert names_with(["direct", "rowsplit"], Op.SDDMM) == ["rowsplit"]
    assert names_with("direct", Op.SDDMM) == "auto"
    assert names_with("auto", Op.SPMM) == ["auto"]
    with pytest.raises(ProblemError, match=r"use: .*nowhere\.py"):
        names_with("nowhere.py:Mine", Op.SPMM)
    with pytest.raises(SweepError, match=r"expected an implementation out of .* found 'nobody'"):
        SparseMatrix(small, use="nobody").spmm(drawn(5, 2))


def test_operands_that_do_not_fit_are_refused(matrix: Any) -> None:
    with pytest.raises(OperandError, match=r"spmm operand B \(K, J\): expected shape \(5, J\), found \(7, 3\)"):
        matrix.spmm(drawn(7, 3))
    with pytest.raises(OperandError, match=r"update_values: expected shape"):
        matrix.spmm(drawn(5, 3), matrix.values[1:])
    with pytest.raises(OperandError, match="expected a tensor on cpu or cuda, found one on meta"):
        matrix.spmm(torch.ones(5, 3, device="meta"))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused(layout: Any, matrix: Any, small: Any) -> None:
    b = drawn(5, 3, grad=False)
    nested, op = torch.nested.nested_tensor([b, b], layout=layout), spmark.compile(small, width=3, device="cpu", **HOW)
    op(b)
    for product in (op, lambda b: spmark.spmm(small, b), matrix.spmm, lambda x: matrix.sddmm(drawn(7, 3), x)):
        with pytest.raises(OperandError, match=r"expected a dense tensor, found a nested one: pass each of tensor\."):
            product(nested)


@pytest.mark.parametrize("other", [None, 3, np.ones((5, 3))])
def test_what_is_no_tensor_is_refused(other: Any, matrix: Any) -> None:
    b, words = drawn(5, 3, grad=False), "expected a tensor of PyTorch, found a "
    with pytest.raises(OperandError, match=words):
        matrix.spmm(other)
    with pytest.raises(OperandError, match=words):
        matrix.sddmm(other, b)
    if other is not None:  # None stands for what is left out
        with pytest.raises(OperandError, match=words):
            matrix.spmm(b, other)
        with pytest.raises(OperandError, match=words):
            matrix.sddmm(drawn(7, 3, grad=False), other)
        with pytest.raises(OperandError, match=words):
            matrix.spmm(b, out=other)


@pytest.mark.parametrize("width", [np.int64(3), [np.int32(3)], np.array([3])])
def test_a_width_may_be_numpy_s(width: Any, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SparseMatrix(small, width=width, **HOW)
    monkeypatch.setattr("spmark.impls.operator.compiled.plan_width", lambda *_: pytest.fail("planned again"))
    assert made.spmm(drawn(5, 3)).shape == (7, 3)


@pytest.mark.parametrize("width", [None, 0, 2.5, "x", [3, None]])
def test_a_width_that_is_none_is_refused(width: Any, small: Any) -> None:
    with pytest.raises(ProblemError, match="expected a width J of at least 1, found"):
        SparseMatrix(small, width=width, **HOW)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_device_is_what_is_missing(small: Any) -> None:
    with pytest.raises(DeviceError, match="expected a usable NVIDIA GPU, found none"):
        SparseMatrix(small, width=3, device="cuda")


def test_a_sparse_layer_is_a_masked_dense_layer(small: Any) -> None:
    layer = SparseLinear(small, **HOW)
    dense = torch.nn.Linear(5, 7, dtype=torch.float64)
    with torch.no_grad():
        dense.weight.copy_(torch.tensor(small.toarray()))
        dense.bias.zero_()
    for shape in ((5,), (4, 5), (2, 3, 5)):
        x, other = drawn(*shape), drawn(*shape)
        assert torch.allclose(layer(x), dense(other))
        for one, product in ((x, layer(x)), (other, dense(other))):
            product.pow(2).sum().backward()
            assert one.grad is not None
        assert torch.allclose(x.grad, other.grad)
    at = small.tocoo()
    assert torch.allclose(layer.values.grad, dense.weight.grad[at.row, at.col])
    assert torch.allclose(layer.bias.grad, dense.bias.grad)


@pytest.mark.parametrize("bias", [True, False])
def test_a_pruned_layer_becomes_a_sparse_one(bias: bool) -> None:
    torch.manual_seed(0)
    dense, x = torch.nn.Linear(6, 4, bias), torch.randn(3, 6)
    prune.random_unstructured(dense, "weight", amount=0.5)
    layer = SparseLinear.from_linear(dense, **HOW)
    assert torch.allclose(layer(x), dense(x), atol=1e-6)
    assert repr(layer) == f"SparseLinear(in_features=6, out_features=4, bias={bias}, non-zeros=12 (50.0%))"
    before = dense(x)
    layer.values.data.zero_()
    if bias:
        layer.bias.data.zero_()
    assert torch.equal(dense(x), before), "nothing is shared"
    half = SparseLinear.from_linear(dense.double(), dtype=torch.float16, **HOW)
    assert half.values.dtype is torch.float16
    assert half.bias is None or half.bias.dtype is torch.float16
    with pytest.raises(OperandError, match=r"expected a torch.nn.Linear, found a Conv1d: pass a sparse weight"):
        SparseLinear.from_linear(torch.nn.Conv1d(2, 2, 1))


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5)])
def test_a_sparse_layer_takes_an_empty_batch_as_a_dense_one_does(shape: tuple[int, ...], small: Any) -> None:
    layer, dense = SparseLinear(small, **HOW), torch.nn.Linear(5, 7, dtype=torch.float64)
    x, other = drawn(*shape), drawn(*shape)
    y, expected = layer(x), dense(other)
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    y.sum().backward()
    expected.sum().backward()
    assert x.grad.shape == other.grad.shape
    assert torch.equal(layer.values.grad, torch.zeros(small.nnz, dtype=torch.float64))
    assert torch.equal(layer.bias.grad, dense.bias.grad)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layer(drawn(0, 4))


def test_a_sparse_layer_learns_and_is_copied(small: Any) -> None:
    torch.manual_seed(0)
    layer, x = SparseLinear(small, **HOW), drawn(20, 5, grad=False)
    aim = x @ torch.tensor(small.toarray()).T * 0.5 + 1
    twin = copy.deepcopy(layer)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = ((layer(x) - aim) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.05 * losses[0]
    assert not torch.equal(twin.values, layer.values)
    assert set(layer.state_dict()) == {"values", "bias", "pattern"}
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x), layer(x))
    assert SparseLinear(small, bias=False, **HOW).bias is None


def test_a_sparse_layer_takes_no_values_of_another_pattern(small: Any) -> None:
    turned = SparseLinear(sparse.csr_array(small.toarray()[::-1]), **HOW)
    before, state = turned.values.detach().clone(), SparseLinear(small, **HOW).state_dict()
    with pytest.raises(RuntimeError, match=r"pattern: expected values of the pattern [0-9a-f]+, found those of"):
        turned.load_state_dict(state)
    assert torch.equal(turned.values, before)
    del state["pattern"]
    SparseLinear(small, **HOW).load_state_dict(state)


@pytest.mark.parametrize("kind", ["half", "bfloat16", "float", "double"])
def test_a_sparse_layer_changes_its_type_as_others_do(kind: str, small: Any) -> None:
    layer, x = SparseLinear(small, **HOW), drawn(4, 5, grad=False)
    expected = layer(x)
    found = getattr(layer, kind)()(getattr(x, kind)())
    assert found.dtype is layer.values.dtype is layer.bias.dtype
    assert torch.allclose(found.double(), expected, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert layer.values.grad.dtype is layer.values.dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_sparse_layer_is_saved_whole(dtype: torch.dtype, small: Any, tmp_path: Path) -> None:
    layer, x = SparseLinear(small, **HOW).to(dtype), drawn(4, 5, grad=False).to(dtype)
    torch.save(layer, tmp_path / "layer.pt")
    again = torch.load(tmp_path / "layer.pt", weights_only=False)
    assert torch.equal(again(x), layer(x))
    assert again.matrix.digest == layer.matrix.digest


@pytest.mark.parametrize("shape", [(1,), (3, -1)])
def test_factors_of_another_shape_are_refused(shape: tuple[int, ...], small: Any) -> None:
    matrix = SparseMatrix(small, **HOW)
    values = torch.ones(matrix.nnz, dtype=torch.float64)
    wrong = values[:1] if shape == (1,) else values.expand(3, -1)
    with pytest.raises(OperandError, match=r"expected values of shape \(\d+,\), found"):
        matrix.sddmm(drawn(7, 2, grad=False), drawn(5, 2, grad=False), wrong)


def test_the_values_are_a_copy(matrix: Any, small: Any) -> None:
    values = matrix.values
    assert torch.equal(values, torch.tensor(small.data))
    values.zero_()
    assert torch.equal(matrix.values, torch.tensor(small.data))
    assert repr(matrix) == f"<spmark.torch.SparseMatrix 7 x 5, {small.nnz} non-zeros, torch.float64>"


def test_an_operand_is_kept_for_a_gradient_of_values_alone(a: Any, b: np.ndarray) -> None:
    matrix, dense = SparseMatrix(a), torch.from_numpy(b).requires_grad_()
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        matrix.spmm(dense)
        assert not saved
        matrix.spmm(dense, matrix.values)
        assert [tuple(one.shape) for one in saved] == [(matrix.nnz,)]
        matrix.spmm(dense.detach(), matrix.values.requires_grad_())
    assert [tuple(one.shape) for one in saved[1:]] == [(matrix.nnz,), (25, 6)]


def test_a_product_by_its_sign(a: Any, b: np.ndarray) -> None:
    matrix, dense = SparseMatrix(a), torch.from_numpy(b)
    assert torch.equal(matrix @ dense, matrix.spmm(dense))
    assert torch.equal(dense.T.repeat(2, 1) @ matrix.T, matrix.spmm(dense).T.repeat(2, 1))
    vector = dense[:, 0].clone().requires_grad_()
    (matrix @ vector).sum().backward()
    assert torch.allclose(vector.grad, torch.tensor(a.toarray()).sum(dim=0), atol=1e-5)


def test_a_transpose_shares_plans_and_has_gradients(matrix: Any, small: Any) -> None:
    x, y, b = drawn(7, 3), drawn(5, 3), drawn(5, 3)
    turned = matrix.T
    matrix.spmm(b).sum().backward()
    planned = set(matrix._operators.made)
    assert torch.allclose(turned @ x, torch.tensor(small.toarray()).T @ x)
    assert set(matrix._operators.made) == planned, "the gradient of a product is one with the transpose"
    (turned @ x).sum().backward()
    assert set(matrix._operators.made) == planned
    assert torch.allclose(turned.T @ b, matrix @ b)
    values = turned.values.requires_grad_()
    assert torch.equal(values, torch.tensor(sparse.csr_array(small.T).data))
    assert torch.autograd.gradcheck(turned.spmm, (x, values), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(turned.spmm, (x, values))
    assert torch.autograd.gradcheck(turned.sddmm, (y, x, values))
    assert (turned.shape, turned.T.digest) == ((5, 7), matrix.digest)


def test_a_transpose_goes_with_the_matrix(small: Any) -> None:
    matrix = SparseMatrix(small, **HOW)
    assert matrix.T is matrix.T
    handle = matrix.T.handle
    del matrix
    with pytest.raises(OperandError, match="expected the handle of a living SparseMatrix"):
        torch.ops.spmark.spmm(None, drawn(7, 3), handle, False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_with_a_transpose_has_one_graph(matrix: Any) -> None:
    x = drawn(7, 3)
    expected = 2 * matrix.T.spmm(x)
    assert torch.allclose(
        torch.compile(lambda x: matrix.T.spmm(x) * 2, fullgraph=True, backend="aot_eager")(x), expected
    )


def test_a_graph_of_pyg(small: Any) -> None:
    edges = torch.tensor([[0, 1, 1], [2, 2, 0]])
    matrix, x = SparseMatrix((edges, 3), **HOW), drawn(3, 2, dtype=torch.float32)
    assert torch.equal(matrix @ x, torch.stack([x[1], torch.zeros(2), x[0] + x[1]]))
