"""Products for PyTorch on a GPU: gradients, the rules of operators, graphs, and memory that no dense matrix takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from spmark.impls.core.errors import BuildError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from spmark.torch import SparseLinear, SparseMatrix  # noqa: E402 (needs PyTorch)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")


def drawn(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, dtype=torch.float64).to("cuda", dtype).requires_grad_()


@pytest.fixture
def small() -> Any:
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((7, 5)) * (rng.random((7, 5)) < 0.5)
    dense[2], dense[:, 3] = 0, 0
    return sparse.csr_array(dense)


def test_gradients_and_rules(small: Any) -> None:
    matrix = SparseMatrix(small)
    b, x, values = drawn(5, 3), drawn(7, 3), matrix.values.cuda().requires_grad_()
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(matrix.spmm, (b, values))
        assert check(matrix.sddmm, (x, b, values))
    spmm, sddmm = torch.ops.spmark.spmm.default, torch.ops.spmark.sddmm.default
    for operator, arguments in (
        (spmm, (None, b, matrix.handle, False)),
        (spmm, (values, b, matrix.handle, False)),
        (spmm, (values, x, matrix.handle, True)),
        (sddmm, (x, b, matrix.handle)),
    ):
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}
    b, x, values = b.detach(), x.detach(), values.detach()
    spmm_out, sddmm_out = torch.ops.spmark.spmm_out.default, torch.ops.spmark.sddmm_out.default
    for operator, arguments in (
        (spmm_out, (None, b, matrix.handle, False, torch.empty_like(x))),
        (spmm_out, (values, b, matrix.handle, False, torch.empty_like(x))),
        (spmm_out, (values, x, matrix.handle, True, torch.empty_like(b))),
        (sddmm_out, (x, b, matrix.handle, torch.empty_like(values))),
    ):
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("kind", ["expanded", "strided", "gaps", "misaligned"])
def test_gradients_of_any_strides(kind: str, small: Any) -> None:
    matrix, dense = SparseMatrix(small), torch.tensor(small.toarray()).cuda()
    numbers = torch.arange(1.0, 29.0, dtype=torch.float64, device="cuda")
    gradient = {
        "expanded": numbers[:4].expand(7, 4),
        "strided": numbers.reshape(4, 7).T,
        "gaps": torch.arange(56.0, dtype=torch.float64, device="cuda").reshape(7, 8)[:, ::2],
        "misaligned": torch.empty(29, dtype=torch.float64, device="cuda")[1:].copy_(numbers).reshape(7, 4),
    }[kind]
    b, values = drawn(5, 4), matrix.values.cuda().requires_grad_()
    matrix.spmm(b, values).backward(gradient)
    at = small.tocoo()
    assert torch.allclose(b.grad, dense.T @ gradient)
    assert torch.allclose(values.grad, (gradient[at.row] * b.detach()[at.col]).sum(dim=1))


def test_out_is_written(small: Any) -> None:
    matrix, b = SparseMatrix(small), drawn(5, 4).detach()
    out = torch.full((7, 4), torch.nan, dtype=torch.float64, device="cuda")
    assert matrix.spmm(b, out=out) is out
    assert torch.equal(out, matrix.spmm(b))


@pytest.mark.parametrize("name", ["auto", "rowsplit", "sparsetir"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_and_gradients_of_searched_implementations(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    a = sparse.random_array((300, 200), density=0.05, rng=rng)
    dense = torch.tensor(a.toarray()).to("cuda", dtype)
    matrix = SparseMatrix(dense.to_sparse(), use=name, budget_s=30)
    b, values = drawn(200, 64, dtype=dtype), matrix.values.cuda().requires_grad_()
    c = matrix.spmm(b, values)
    c.float().pow(2).sum().backward()
    wide = b.detach().double().requires_grad_()
    expected = dense.double() @ wide
    expected.pow(2).sum().backward()
    limit = 1e-4 if dtype is torch.float32 else 5e-2
    assert torch.allclose(c.double(), expected, rtol=limit, atol=limit)
    assert torch.allclose(b.grad.double(), wide.grad, rtol=limit, atol=10 * limit)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_softmax_of_rows(dtype: Any) -> None:
    """Rows without elements, of one, and of more than a warp takes at once; the host's is PyTorch's."""
    pattern = sparse.random_array((300, 500), density=0.2, rng=np.random.default_rng(2), format="lil")
    pattern[3], pattern[4], pattern[4, 7] = 0, 0, 1
    matrix = SparseMatrix(pattern.tocsr())
    scores, grad = (9 * torch.randn(matrix.nnz, dtype=torch.float64)).to(dtype), torch.randn(matrix.nnz).to(dtype)
    limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    found = []
    for place in ("cpu", "cuda"):
        given = scores.detach().to(place).requires_grad_()
        shares = matrix.softmax(given)
        shares.backward(grad.to(place))
        found.append((shares.detach().cpu(), given.grad.cpu()))
    (expected, gradient), (shares, found_gradient) = found
    torch.testing.assert_close(shares, expected, rtol=limit, atol=limit / 100)
    # A gradient is a share times a difference, which may cancel: its error is one of the terms.
    terms = expected.abs() * 2 * grad.abs().max()
    assert ((found_gradient - gradient).abs() <= limit * (terms + 0.01)).all()
    fixed = scores.cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        shares = matrix.softmax(fixed)
    fixed.neg_()
    graph.replay()
    torch.testing.assert_close(shares.cpu(), matrix.softmax(-scores), rtol=limit, atol=limit / 100)


def test_a_step_of_training_is_captured(small: Any) -> None:
    matrix = SparseMatrix(small, width=4, backward=True, device="cuda")
    b = drawn(5, 4)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        matrix.spmm(b).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    b.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = matrix.spmm(b)
        c.sum().backward()
    with torch.no_grad():
        b.copy_(torch.randn(5, 4, dtype=torch.float64))
    graph.replay()
    torch.cuda.synchronize()
    dense = torch.tensor(small.toarray()).cuda()
    assert torch.allclose(c, dense @ b)
    assert torch.allclose(b.grad, dense.T @ torch.ones_like(c))


def test_a_step_of_a_layer_is_captured(small: Any) -> None:
    layer = SparseLinear(small, width=4, device="cuda").cuda()
    x = drawn(4, 5)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        layer(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    layer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(x).pow(2).sum().backward()
    with torch.no_grad():
        layer.values.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    at, dense = small.tocoo(), torch.tensor(2 * small.toarray()).cuda().requires_grad_()
    (x.detach() @ dense.T).pow(2).sum().backward()
    assert torch.allclose(layer.values.grad, dense.grad[at.row, at.col])


def test_a_capture_refuses_what_is_planned_lazily(small: Any) -> None:
    matrix, b = SparseMatrix(small, width=4, device="cuda"), torch.randn(5, 4, dtype=torch.float64, device="cuda")
    x = torch.randn(7, 4, dtype=torch.float64, device="cuda")
    matrix.spmm(b)
    with pytest.raises(BuildError, match="expected sddmm to be planned while a stream captures a graph"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            matrix.sddmm(x, b)


def test_streams_of_pytorch_share_a_matrix() -> None:
    rng = np.random.default_rng(3)
    a = sparse.random_array((3000, 2000), density=0.01, rng=rng).tocsr()
    a.data[:] = rng.integers(-3, 4, a.nnz)
    matrix = SparseMatrix(a.astype(np.float32), use="sparsetir")
    given = [torch.randint(-3, 4, (2000, 64), device="cuda").float() for _ in range(4)]
    matrix.spmm(given[0])
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in given], [[] for _ in given]
    for _ in range(10):
        for stream, b, found in zip(streams, given, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(matrix.spmm(b))
    torch.cuda.synchronize()
    for b, found in zip(given, results, strict=True):
        expected = torch.tensor(a @ b.cpu().numpy())
        assert all(torch.equal(one.cpu(), expected) for one in found)


def test_gradients_take_no_memory_of_a_dense_matrix() -> None:
    nodes, width = 40_000, 16  # I x K would take 6.4 GB of float32
    a = sparse.random_array((nodes, nodes), density=1e-4, rng=np.random.default_rng(4), dtype=np.float32)
    layer = SparseLinear(a, bias=False, device="cuda", width=width, budget_s=0).cuda()
    x = drawn(width, nodes, dtype=torch.float32)
    layer(x).sum().backward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    layer(x).sum().backward()
    outputs = 4 * (2 * width * nodes + layer.matrix.nnz)
    assert torch.cuda.max_memory_allocated() - before < 6 * outputs


def test_autocast(small: Any) -> None:
    matrix, b = SparseMatrix(small.astype(np.float32)), drawn(5, 8, dtype=torch.float32)
    with torch.autocast("cuda", torch.float16):
        c = matrix.spmm(b)
    assert c.dtype is torch.float16
    c.float().sum().backward()
    assert b.grad.dtype is torch.float32
