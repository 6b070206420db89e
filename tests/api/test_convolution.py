"""Sparse convolutions of `spmark.torch` against dense ones, and their gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import MatrixError, OperandError
from spmark.impls.core.relational import RelationalCsr

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

EDGE = 8
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 2e-2}
"""Tolerances: sums of up to 27 times 5 products, rounded to the dtype once."""


@pytest.fixture
def voxels() -> Any:
    """Draw a third of the voxels of a cube, in any order; one of each face is among them."""
    place = np.random.default_rng(0).permutation(EDGE**3)[: EDGE**3 // 3]
    return torch.from_numpy(np.stack(np.unravel_index(place, (EDGE,) * 3), axis=1).astype(np.int32))


def dense(voxels: Any, features: Any) -> Any:
    """Put features where their voxels are, (1, channels, edge, edge, edge)."""
    found = torch.zeros(features.shape[1], EDGE, EDGE, EDGE, dtype=features.dtype)
    found[:, *voxels.long().T] = features.T
    return found[None]


def kernel(layer: Any) -> Any:
    """Give the weight as `torch.nn.functional.conv3d` has it."""
    size = round(layer.weight.shape[0] ** (1 / 3))
    weight = layer.weight.detach().cpu().double()
    return weight.permute(2, 1, 0).reshape(*weight.shape[:0:-1], size, size, size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_layers_are_dense_convolutions_at_the_voxels(voxels: Any, device: str, dtype: str) -> None:
    from spmark.torch import KernelMap, SparseConv3d

    torch.manual_seed(1)
    kind, functional = getattr(torch, dtype), torch.nn.functional
    there = voxels.to(device)
    same, (coarse, down) = KernelMap.submanifold(there), KernelMap.strided(there)
    x = torch.randn(len(voxels), 5).to(kind)
    for where, size, step in ((same, 3, {"padding": 1}), (down, 2, {"stride": 2})):
        layer = SparseConv3d(5, 8, size, dtype=kind, device=device)
        torch.nn.init.normal_(layer.bias)
        found = layer(x.to(device), where).detach().cpu().double()
        expected = functional.conv3d(
            dense(voxels, x.double()), kernel(layer), layer.bias.detach().cpu().double(), **step
        )
        at = (voxels if where is same else coarse.cpu()).long()
        torch.testing.assert_close(found, expected[0][:, *at.T].T, rtol=DTYPES[dtype], atol=DTYPES[dtype])
    up = SparseConv3d(8, 5, 2, bias=False, dtype=kind, device=device)
    found = up(layer(x.to(device), down).detach(), down.T).detach().cpu().double()
    weight = kernel(up).transpose(0, 1)
    full = functional.conv_transpose3d(expected, weight, stride=2)
    torch.testing.assert_close(found, full[0][:, *voxels.long().T].T, rtol=DTYPES[dtype], atol=2 * DTYPES[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("which", ["submanifold", "down", "up"])
def test_gradients(voxels: Any, which: str, device: str) -> None:
    from spmark.impls.operator.torchops import convolve, correlate
    from spmark.torch import KernelMap

    few = voxels[:20].to(device)
    down = KernelMap.strided(few)[1]
    where = {"submanifold": KernelMap.submanifold(few), "down": down, "up": down.T}[which]
    matrix = where.matrix
    new = {"dtype": torch.float64, "device": device, "requires_grad": True}
    x, w = torch.randn(matrix.num_cols, 2, **new), torch.randn(matrix.relations, 2, 3, **new)
    y = torch.randn(matrix.num_rows, 3, **new)
    assert torch.autograd.gradcheck(lambda x, w: convolve(None, x, w, where.handle), (x, w))
    assert torch.autograd.gradcheck(lambda x, y: correlate(None, x, y, where.handle), (x, y))
    assert torch.autograd.gradgradcheck(lambda x, w: convolve(None, x, w, where.handle), (x, w))


@pytest.mark.full  # importing the compiler takes half a minute
@pytest.mark.parametrize("device", DEVICES)
def test_operators_are_what_they_say(voxels: Any, device: str) -> None:
    from spmark.impls.operator.torchops import convolve, correlate
    from spmark.torch import KernelMap

    where = KernelMap.strided(voxels.to(device))[1]
    x, y, w = (
        torch.randn(*shape, device=device, requires_grad=True)
        for shape in ((where.matrix.num_cols, 4), (where.matrix.num_rows, 3), (8, 4, 3))
    )
    torch.library.opcheck(convolve, (None, x, w, where.handle))
    torch.library.opcheck(correlate, (None, x, y, where.handle))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.gpu)])
def test_gradients_of_planned_products_are_those_of_plain_ones(voxels: Any, dtype: str) -> None:
    from spmark.torch import KernelMap, SparseConv3d

    device = "cuda" if dtype == "float16" else "cpu"
    where, kind = KernelMap.submanifold(voxels.to(device)), getattr(torch, dtype)
    layer = SparseConv3d(16, 8, dtype=kind, device=device)
    x = torch.randn(len(voxels), 16, dtype=kind, device=device, requires_grad=True)
    g = torch.randn(len(voxels), 8, dtype=kind, device=device)
    layer(x, where).backward(g)
    other, wide = x.detach().double().requires_grad_(), SparseConv3d(16, 8, dtype=torch.float64, device=device)
    wide.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    wide(other, where).backward(g.double())
    close = {"rtol": DTYPES[dtype], "atol": 10 * DTYPES[dtype]}
    torch.testing.assert_close(x.grad.double(), other.grad, **close)
    torch.testing.assert_close(layer.weight.grad.double(), wide.weight.grad, **close)


@pytest.mark.parametrize("device", DEVICES)
def test_voxelize(device: str) -> None:
    from spmark.torch import voxelize

    points = torch.tensor([[0.3, 0, 0], [-0.1, 0, 0], [0.4, 0.1, 0.2]], device=device)
    found, inverse = voxelize(points, 0.5)
    assert (found.tolist(), inverse.tolist()) == ([[0, 0, 0], [-1, 0, 0]], [0, 1, 0])
    assert found.device == points.device


def test_what_does_not_fit_is_refused(voxels: Any) -> None:
    from spmark.torch import KernelMap, SparseConv3d

    where = KernelMap.submanifold(voxels)
    with pytest.raises(OperandError, match=r"weights of 27 .*offsets.* 170 rows, .* found \(8, 5, 4\) and \(170, 5\)"):
        SparseConv3d(5, 4, 2)(torch.randn(170, 5), where)
    with pytest.raises(OperandError, match=r"as wide as the weights are high, found \(27, 5, 4\) and \(170, 6\)"):
        SparseConv3d(5, 4)(torch.randn(170, 6), where)
    with pytest.raises(OperandError, match=r"weights of torch.float64 on cpu, as features are, found torch.float32"):
        SparseConv3d(5, 4)(torch.randn(170, 5).double(), where)
    with pytest.raises(MatrixError, match="that are all different"):
        KernelMap.submanifold(torch.cat([voxels, voxels[:1]]))
    with pytest.raises(MatrixError, match="map: expected an edge of each relation and row"):
        KernelMap(RelationalCsr.of_edges((2, 2), 3, ([0, 0], [1, 1], [0, 1])))
    with pytest.raises(MatrixError, match="map: expected each pair of input and output once"):
        KernelMap(RelationalCsr.of_edges((2, 2), 3, ([0, 0], [1, 1], [0, 0])))
