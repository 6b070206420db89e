"""Relational products through the extension on a GPU: the plan's own results, gradients, streams, threads, graphs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from relational import drawn, kernel_map

from spmark.impls.core.errors import BuildError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cupy", reason="CuPy is not installed")
from spmark.impls.operator import native  # noqa: E402 (needs PyTorch)
from spmark.torch import KernelMap, RelationalMatrix  # noqa: E402 (needs PyTorch)

pytestmark = pytest.mark.gpu
WIDTHS = 32, 64
PUBLISHED = (("rgms_hyb", {"tuned": False}),)
"""No search."""


@pytest.fixture(autouse=True)
def built() -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    if native.EXTENSION.wait() is None:
        pytest.skip("the extension cannot be built")


@pytest.fixture
def a() -> Any:
    """Give a map whose relations are split, so that pieces of rows are added up in a workspace."""
    return KernelMap(kernel_map(900))


def operands(a: Any, dtype: Any = torch.float16) -> tuple[Any, Any]:
    """Draw X, and W as a parameter."""
    width_in, width_out = WIDTHS
    x, w = torch.randn(a.matrix.num_cols, width_in), torch.randn(a.matrix.relations, width_in, width_out)
    return x.to("cuda", dtype), torch.nn.Parameter(w.to("cuda", dtype))


def planned(a: Any) -> Any:
    (found,) = a._plans.values()
    return found


def without_python(a: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the plan, whose launches Python makes no more."""
    plan, turns, launches = planned(a)
    assert launches.find(WIDTHS) is not None
    monkeypatch.setattr(turns, "take", None)
    return plan


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["map", "hub"])
def test_a_plan_s_own_results(name: str, dtype: Any, a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "hub":
        a = RelationalMatrix(drawn(500, 400, [900, 0, 600], hub=300))
    if name == "hub" or dtype is torch.float32:
        a.in_order = PUBLISHED
    x, w = operands(a, dtype)
    a.rgms(x, w)
    plan = without_python(a, monkeypatch)
    gaps, odd = x.repeat(1, 2)[:, : x.shape[1]], torch.empty(x.numel() + 1, device="cuda", dtype=dtype)[1:].view_as(x)
    for given in (*(operands(a, dtype)[0] for _ in range(3)), gaps, odd.copy_(x)):
        expected = torch.empty(a.matrix.num_rows, WIDTHS[1], device="cuda", dtype=dtype)
        plan.run((given.clone(memory_format=torch.contiguous_format), w.detach()), expected)
        with torch.no_grad():
            found = [a.rgms(given, w), a.multiply(None, given, w)]
            direct = a._native.rgms(given, w)
        found.append(a.rgms(given, w))
        assert [one.requires_grad for one in found] == [False, False, True]
        assert (direct is NotImplemented) == (given is gaps or given is odd)
        found += [] if direct is NotImplemented else [direct]
        for one in found:
            if plan.deterministic:
                assert torch.equal(one, expected)
            else:
                torch.testing.assert_close(one, expected, rtol=3e-2, atol=3e-1)


def test_plans_that_call_a_library_stay_in_python() -> None:
    a = RelationalMatrix(drawn(500, 400, [900, 0, 600]))
    a.in_order = (("gather_gemm_scatter", {}),)
    x, w = operands(a, torch.float32)
    values = a.values.cuda()
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(a.rgms(x, w), a.rgms(x, w, values), rtol=1e-3, atol=1e-2)
    assert planned(a).launches.find(WIDTHS) is None


def test_streams_and_threads(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = operands(a)
    a.rgms(x, w)
    assert without_python(a, monkeypatch).buffers
    wrong = []

    def work() -> None:
        (x, _), stream = operands(a), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(stream):
            found = [a.rgms(x, w) for _ in range(50)]
        stream.synchronize()
        expected = a.rgms(x, w)
        wrong.extend(one for one in found if not torch.equal(one, expected))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@torch.no_grad()
def test_two_graphs_replay_at_once_and_beside_a_call(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a workspace of its own."""
    x, w = operands(a)
    expected, graphs = a.rgms(x, w), []
    without_python(a, monkeypatch)
    for _ in range(2):
        graph, (given, _) = torch.cuda.CUDAGraph(), operands(a)
        with torch.cuda.graph(graph):
            out = a.rgms(given, w)
        graphs.append((graph, given, out, torch.cuda.Stream()))
    aside = torch.cuda.Stream()
    for _ in range(50):
        for _, given, _, _ in graphs:
            given.normal_()
        torch.cuda.synchronize()
        for graph, _, _, stream in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(aside):
            found = a.rgms(x, w)
        torch.cuda.synchronize()
        assert torch.equal(found, expected)
        for _, given, out, _ in graphs:
            assert torch.equal(out, a.rgms(given, w))


def test_a_gradient_of_features_is_captured(a: Any) -> None:
    x, w = operands(a)
    x.requires_grad_()
    w.requires_grad_(False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        a.rgms(x, w).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = a.rgms(x, w)
        y.sum().backward()
    with torch.no_grad():
        w.normal_()
    graph.replay()
    again = a.rgms(x, w)
    assert torch.equal(y, again)
    assert torch.equal(x.grad, torch.autograd.grad(again.sum(), x)[0])


@torch.no_grad()
def test_a_capture_refuses_what_is_planned_lazily(a: Any) -> None:
    x, w = operands(a)
    with pytest.raises(BuildError, match="expected an earlier product of widths 32 and 64 while a stream captures"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a.rgms(x, w)
    torch.testing.assert_close(a.rgms(x, w), a.rgms(x, w, a.values.to(x)), rtol=2e-2, atol=2e-1)


@torch.no_grad()
def test_operands_that_do_not_fit_reach_no_kernel(a: Any) -> None:
    from spmark.impls.core.errors import OperandError

    x, w = operands(a)
    a.rgms(x, w)
    for wrong in ((x[1:], w), (x, w[1:]), (x, w.float())):
        with pytest.raises(OperandError):
            torch.ops.spmark.convolve(None, *wrong, a.handle)
