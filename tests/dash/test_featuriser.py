"""Sparse networks against dense ones that are set to zero wherever no site is active."""

from __future__ import annotations

import numpy as np
import pytest
from dash_fakes import random_csr
from scipy import sparse

from spmark.impls.core.problem import Csr, Problem
from spmark.impls.dash.featuriser import BLOCKS, Featuriser, Pattern, build, embed
from spmark.impls.dash.sites import down_sample, sizes
from spmark.impls.dash.sparseconv import Pyramid, convolve
from spmark.impls.dash.withtorch import seeded

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
functional = torch.nn.functional


@pytest.fixture(params=[(24, 31, 0.1), (40, 9, 0.3), (1, 12, 0.5), (33, 33, 0.0)], ids=str)
def problem(request) -> Problem:
    rows, cols, density = request.param
    return Problem("spmm", random_csr(1, (rows, cols), density), 16)


def pattern_of(problem: Problem) -> Pattern:
    return Pattern.of(down_sample(problem.matrix), sizes(problem))


def dense_of(pyramid: Pyramid, grid: tuple[int, int]):
    """Give features (1, channels, rows, cols) and where sites are active (1, 1, rows, cols)."""
    level = pyramid.level(0)
    mask, full = torch.zeros(1, 1, *grid), torch.zeros(1, pyramid.features.shape[1], *grid)
    mask[0, 0, level.rows, level.cols] = 1
    full[0, :, level.rows, level.cols] = pyramid.features.T
    return full, mask


def dense_convolution(full, layer, stride=1):
    kernel = round((layer.in_features / full.shape[1]) ** 0.5)
    weight = layer.weight.view(-1, kernel, kernel, full.shape[1]).permute(0, 3, 1, 2)
    return functional.conv2d(full, weight, layer.bias, stride=stride, padding=kernel // 2)


def halved(full):
    return functional.max_pool2d(full, 2, ceil_mode=True)


def mean_of(full, mask):
    return (full * mask).sum((0, 2, 3)) / mask.sum().clamp(min=1)


def grid_of(problem: Problem) -> tuple[int, int]:
    return down_sample(problem.matrix).grid


@pytest.mark.parametrize("kernel", [3, 5])
def test_a_convolution_is_the_dense_one_at_active_sites(problem, kernel):
    with seeded(0):
        layer = torch.nn.Linear(kernel * kernel * 3, 7)
    pyramid = Pyramid(down_sample(problem.matrix))
    level = pyramid.level(0)
    found = convolve(pyramid.features, pyramid.taps(0, range(-(kernel // 2), kernel // 2 + 1)), layer)
    expected = dense_convolution(dense_of(pyramid, grid_of(problem))[0], layer)[0][:, level.rows, level.cols].T
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_the_dense_convolution():
    problem = Problem("spmm", random_csr(2, (12, 17), 0.3), 4)
    pyramid = Pyramid(down_sample(problem.matrix))
    level = pyramid.level(0)
    with seeded(0):
        layer = torch.nn.Linear(9 * 3, 5)
        weigh = torch.randn(len(level.rows), 5)
    given = pyramid.features.clone().requires_grad_()
    (convolve(given, pyramid.taps(0, range(-1, 2)), layer) * weigh).sum().backward()
    found = given.grad.clone(), layer.weight.grad.clone(), layer.bias.grad.clone()
    layer.zero_grad()
    full, _ = dense_of(pyramid, grid_of(problem))
    full.requires_grad_()
    (dense_convolution(full, layer)[0][:, level.rows, level.cols].T * weigh).sum().backward()
    expected = full.grad[0][:, level.rows, level.cols].T, layer.weight.grad, layer.bias.grad
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_dash_is_its_dense_twin(problem):
    with seeded(1):
        layers = build(Featuriser.DASH)
    pattern = pattern_of(problem)
    full, mask = dense_of(pattern.pyramid, grid_of(problem))
    convolutions = iter(layers["convolutions"])
    with torch.no_grad():
        for number, (channels, norm) in enumerate(zip(BLOCKS, layers["norms"], strict=True)):
            for _ in channels:
                full = dense_convolution(full, next(convolutions)).relu() * mask
            if number < 3:
                full, mask = halved(full), halved(mask)
            full = norm(full.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) * mask
        expected = layers["joint"](torch.cat([mean_of(full, mask), layers["sizes"](pattern.sizes)]))
        torch.testing.assert_close(embed(Featuriser.DASH, layers, pattern), expected, rtol=1e-4, atol=1e-5)


def test_waco_is_its_dense_twin(problem):
    with seeded(2):
        layers = build(Featuriser.WACO)
    pattern = pattern_of(problem)
    full, mask = dense_of(pattern.pyramid, grid_of(problem))
    with torch.no_grad():
        averages = []
        for number, layer in enumerate(layers["convolutions"]):
            stride = 2 if number else 1
            mask = halved(mask) if number else mask
            full = dense_convolution(full, layer, stride).relu() * mask
            averages.append(mean_of(full, mask))
        expected = layers["joint"](torch.cat([*averages, layers["sizes"](pattern.sizes)]))
        torch.testing.assert_close(embed(Featuriser.WACO, layers, pattern), expected, rtol=1e-4, atol=1e-5)
    assert len(averages) == 14


@pytest.mark.gpu
@pytest.mark.parametrize("kind", Featuriser)
def test_a_gpu_gives_the_same_embedding(kind, problem):
    if not torch.cuda.is_available():
        pytest.skip("PyTorch is installed without CUDA")
    with seeded(5):
        layers = build(kind)
    with torch.no_grad():
        expected = embed(kind, layers, pattern_of(problem))
        on_gpu = Pattern.of(down_sample(problem.matrix), sizes(problem), "cuda")
        found = embed(kind, layers.to("cuda"), on_gpu)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_patterns_are_told_apart_unless_nothing_looks_at_them():
    ones = np.ones(64, np.float32)
    diagonal = Csr.of(sparse.diags_array(ones).tocsr())
    row = Csr.of(sparse.csr_array((ones, (np.zeros(64, int), np.arange(64))), shape=(64, 64)))
    for kind in Featuriser:
        with seeded(4):
            layers = build(kind)
        with torch.no_grad():
            one, other = (embed(kind, layers, pattern_of(Problem("spmm", m, 8))) for m in (diagonal, row))
        assert torch.equal(one, other) == (kind is Featuriser.NONE)
