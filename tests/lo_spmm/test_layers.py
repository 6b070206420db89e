"""Fused layers and convolutions, in both languages, against loops that anyone can read."""

from __future__ import annotations

import numpy as np
import pytest
from compilers import needs_compilers
from problems import dense_operands, random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import OperandError, UnsupportedError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.kernel import Ending, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.layers import conv2d, fused_spmm
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.runtime.device import find

HOST = find("host-simt")


def convolved(images: np.ndarray, weights: np.ndarray, stride: int, padding: int) -> np.ndarray:
    padded = np.pad(images.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    filters, _, down, right = weights.shape
    high, wide = ((size - taps) // stride + 1 for size, taps in zip(padded.shape[2:], (down, right), strict=True))
    out = np.zeros((images.shape[0], filters, high, wide))
    for y in range(high):
        for x in range(wide):
            seen = padded[:, :, y * stride : y * stride + down, x * stride : x * stride + right]
            out[:, :, y, x] = np.einsum("ncrs,ocrs->no", seen, weights.astype(np.float64))
    return out


def pruned(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    weights = rng.choice([-1, 1], shape) * rng.uniform(0.5, 1, shape) * (rng.uniform(0, 1, shape) < 0.3)
    weights[1] = 0  # a filter of which nothing is left
    return weights.astype(np.float32)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("shape", "taps", "stride", "padding"),
    [
        ((2, 3, 7, 6), (3, 3), 1, 1),
        ((2, 4, 8, 9), (3, 2), 2, 1),
        ((3, 5, 5, 5), (1, 1), 1, 0),
        ((1, 2, 9, 11), (5, 3), 3, 2),
        ((2, 2, 6, 6), (2, 2), 2, 0),
    ],
)
@pytest.mark.parametrize("relu", [False, True])
def test_conv2d_on_the_host(
    shape: tuple[int, int, int, int], taps: tuple[int, int], stride: int, padding: int, relu: bool
) -> None:
    rng = np.random.default_rng(3)
    weights = pruned(rng, (6, shape[1], *taps))
    images = rng.uniform(-1, 1, shape).astype(np.float32)
    bias = rng.uniform(-1, 1, 6).astype(np.float32) if relu else None
    expected = convolved(images, weights, stride, padding)
    if bias is not None:
        expected = np.maximum(expected + bias[:, None, None], 0)
    plan = conv2d(weights, shape, HOST, stride=stride, padding=padding, bias=bias, relu=relu)
    out = np.full(expected.shape, np.nan, np.float32)
    plan.run((images,), out)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)
    assert plan.stored == np.count_nonzero(weights)
    with pytest.raises(OperandError):
        plan.run((images[:, :, :-1],), out)


@pytest.mark.parametrize(("bias", "relu"), [(True, True), (True, False), (False, True)])
def test_fused_spmm_on_the_host(bias: bool, relu: bool) -> None:
    """Rows without weights hold the bias."""
    rng = np.random.default_rng(5)
    problem = Problem(Op.SPMM, random_csr(9, 20, [3, 0, 5, 1, 0, 20, 2, 4, 4]), 36)
    added = rng.uniform(-1, 1, 9).astype(np.float32) if bias else np.zeros(9, np.float32)
    (operand,) = dense_operands(problem)
    dense = np.zeros((9, 20))
    dense[problem.matrix.rows_of_entries(), problem.matrix.indices] = problem.matrix.values
    expected = dense @ operand + added[:, None]
    plan = fused_spmm(problem, HOST, bias=added if bias else None, relu=relu)
    out = np.full((9, 36), np.nan, np.float32)
    plan.run((operand,), out)
    np.testing.assert_allclose(out, np.maximum(expected, 0) if relu else expected, rtol=0, atol=1e-5)


def test_the_activation_keeps_what_is_no_number() -> None:
    problem = Problem(Op.SPMM, random_csr(4, 20, [20, 20, 0, 20]), 36)
    (operand,) = dense_operands(problem)
    operand[7, 5] = np.nan
    out = np.zeros((4, 36), np.float32)
    fused_spmm(problem, HOST, relu=True).run((operand,), out)
    expected = np.zeros((4, 36), np.bool_)
    expected[[0, 1, 3], 5] = True
    np.testing.assert_array_equal(np.isnan(out), expected)


def test_what_is_refused() -> None:
    weights = pruned(np.random.default_rng(0), (4, 2, 3, 3))
    with pytest.raises(ValueError, match="found \\(4, 2, 3, 3\\) and \\(1, 3, 8, 8\\)"):
        conv2d(weights, (1, 3, 8, 8), HOST)
    with pytest.raises(ValueError, match="as large as a filter"):
        conv2d(weights, (1, 2, 2, 8), HOST)
    with pytest.raises(ValueError, match="at most 32 taps"):
        ConvShape(1, 2, 9, 9, 4, (7, 7), padding=3)
    with pytest.raises(ValueError, match="below 2 GiB of float32, found 536,870,912 elements"):
        ConvShape(2, 1, 1 << 14, 1 << 14, 1, (1, 1), stride=64)
    with pytest.raises(ValueError, match="that float32 holds"):
        conv2d(weights, (1, 2, 8, 8), HOST, bias=np.full(4, 1e39))
    with pytest.raises(ValueError, match="bias of 4 elements"):
        conv2d(weights, (1, 2, 8, 8), HOST, bias=np.zeros(3, np.float32))
    with pytest.raises(UnsupportedError, match="expected non-zeros"):
        conv2d(np.zeros((4, 2, 3, 3), np.float32), (1, 2, 8, 8), HOST)


def conv_kernel(padding: int) -> UnrolledKernel:
    conv = ConvShape(2, 3, 8, 7, 5, (3, 3), 2, padding)
    matrix = random_csr(5, 27, [9, 4, 27, 1, 12])
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 4))
    bias = np.linspace(-1, 1, 5, dtype=np.float32)
    dispatch = np.arange(len(tiles), dtype=np.int32)
    return UnrolledKernel(tiles, dispatch, conv.columns, 1, 4, conv=conv, ending=Ending(bias, relu=True))


@needs_compilers
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_convolution_is_assembled(padding: int, arch: str) -> None:
    assert assemble(conv_kernel(padding), arch, register_cap(4, 1, 4), workers=1).spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize(("stride", "padding", "taps"), [(1, 1, 3), (2, 1, 3), (1, 0, 1), (2, 2, 5)])
def test_conv2d_is_pytorch_s(stride: int, padding: int, taps: int) -> None:
    torch = pytest.importorskip("torch")
    device: DeviceSpec = find("cuda")
    rng = np.random.default_rng(1)
    weights = pruned(rng, (48, 32, taps, taps))
    images = rng.uniform(-1, 1, (4, 32, 28, 28)).astype(np.float32)
    bias = rng.uniform(-1, 1, 48).astype(np.float32)
    torch.backends.cudnn.allow_tf32 = False
    given = torch.from_numpy(images).cuda()
    expected = torch.nn.functional.conv2d(
        given, torch.from_numpy(weights).cuda(), torch.from_numpy(bias).cuda(), stride, padding
    ).relu()
    plan = conv2d(weights, images.shape, device, stride=stride, padding=padding, bias=bias, relu=True)
    out = torch.full_like(expected, float("nan"))
    plan.run((given,), out)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)
