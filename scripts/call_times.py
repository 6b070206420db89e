"""Times what a person's calls cost from Python: host time, eager products and steps, planning; prints JSON lines.

    SPMARK_MIRROR=... python scripts/call_times.py            # all parts, on the GPU
    python scripts/call_times.py --parts host --device cpu    # names and results; times mean nothing there

Both sides of a line run by turns in one process. ``host_us`` is the time until calls return, ``us`` until their results
are there; both are medians over turns of a mean call. A part that fails gives its traceback, and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import nn

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.datasets.sweep.reading import parse_matrix
from spmark.impls.runtime.sparse_library import loaded_files

WIDTH = 128
GRAPHS = tuple(
    f"mirror/{name}" for name in ("ogbn-arxiv", "musae_git", "tolokers", "web-NotreDame", "ppi-train-20graphs")
)
Line = dict[str, Any]
Run = Callable[[], Any]


def by_turns(runs: Sequence[Run], device: str, calls: int = 50, turns: int = 11) -> list[tuple[float, float]]:
    """Give the median of a call's microseconds, of the host and until the results are there, for each of some runs."""
    sync = torch.cuda.synchronize if device == "cuda" else int
    found: list[list[tuple[float, float]]] = [[] for _ in runs]
    for turn in range(turns + 1):
        for run, told in zip(runs, found, strict=True):
            sync()
            began = perf_counter()
            for _ in range(calls):
                run()
            returned = perf_counter()
            sync()
            if turn:  # the first one warms up
                told.append(((returned - began) / calls * 1e6, (perf_counter() - began) / calls * 1e6))
    return [(median(one for one, _ in told), median(one for _, one in told)) for told in found]


def compared(what: str, ours: Run, others: dict[str, Run], device: str, **more: Any) -> Iterator[Line]:
    """Give a line for each of the others, with ``host_over`` and ``speedup`` of ours over it."""
    (host_us, us), *rest = by_turns([ours, *others.values()], device, **more)
    for name, (other_host_us, other_us) in zip(others, rest, strict=True):
        yield {
            "what": what, "over": name, "host_us": host_us, "other_host_us": other_host_us, "us": us,
            "other_us": other_us, "host_over": host_us / other_host_us, "speedup": other_us / us,
        }  # fmt: skip


def graph(name: str) -> Any:
    """Load a matrix as SciPy's, with random values."""
    loaded = load_matrix(MatrixSpec.model_validate(parse_matrix(name)), Cache.default(), 0).csr
    return sparse.csr_array((loaded.values.astype(np.float32), loaded.indices, loaded.indptr), shape=loaded.shape)


ONE_LAUNCH, WORKSPACE = SMALL = ("one launch", "a workspace")
"""Matrices whose kernels end before the next call is made; rows that several blocks share take a workspace."""


def small_matrix(name: str) -> Any:
    """Draw a matrix of `SMALL`."""
    rng = np.random.default_rng(0)
    found = sparse.random(4096, 4096, 0.001, "lil", np.float32, random_state=rng)
    if name == WORKSPACE:
        found[[7]] = rng.standard_normal((1, 4096)).astype(np.float32)
    return found.tocsr()


def tensor_of(a: Any, device: str) -> torch.Tensor:
    """Give a matrix as PyTorch's CSR."""
    arrays = map(torch.from_numpy, (a.indptr, a.indices, a.data))
    return torch.sparse_csr_tensor(*arrays, a.shape, check_invariants=False).to(device)


def stepped(product: Callable[[Any], Any], b: torch.Tensor, weights: torch.Tensor) -> Run:
    """Give a forward and backward pass."""

    def step() -> None:
        b.grad = None
        product(b).backward(weights)

    return step


def host(device: str, name: str) -> Iterator[Line]:
    """Compare the host's part of products of `spmark.torch` with that of PyTorch's own."""
    from spmark.impls.operator.native import EXTENSION
    from spmark.torch import SparseMatrix

    if device == "cuda":
        began = perf_counter()
        yield {"what": "extension", "there": EXTENSION.wait() is not None, "waited_s": perf_counter() - began}
    a, use = small_matrix(name), "direct" if device == "cuda" else "scipy_cpu"
    b, weights = (torch.randn(4096, 32, device=device) for _ in range(2))
    needing = b.clone().requires_grad_()
    matrix, theirs = SparseMatrix(a, use=use, width=32, backward=True, device=device), tensor_of(a, device)
    stepped(matrix.spmm, needing, weights)()
    assert torch.allclose(matrix.spmm(b), theirs @ b, rtol=1e-4, atol=1e-3)
    about = {"matrix": name, "native": matrix._native.spmm(matrix, b) is not NotImplemented}
    handle, op = matrix.handle, torch.ops.spmark.spmm.default
    others: dict[str, Run] = {"A @ b": lambda: theirs @ b}
    with torch.no_grad():
        for line in compared("forward", lambda: matrix.spmm(b), others, device):
            yield about | line
        for line in compared("forward by torch.ops", lambda: op(None, b, handle, False), others, device):
            yield about | line
    for line in compared("forward with gradient", lambda: matrix.spmm(needing), others, device):
        yield about | line
    doubled = {"b * 2": stepped(lambda x: x * 2, needing, weights)}
    for line in compared("forward and backward", stepped(matrix.spmm, needing, weights), doubled, device):
        yield about | line
    coo = a.tocoo()
    rows, cols = (torch.from_numpy(one).to(device) for one in (coo.row, coo.col))
    sampled: dict[str, Run] = {
        "torch.sparse.sampled_addmm": lambda: torch.sparse.sampled_addmm(theirs, weights, b.T, beta=0.0),
        "products of gathered rows": lambda: (weights[rows] * b[cols]).sum(1),
    }
    found = matrix.sddmm(weights, b)
    for other in (sampled["torch.sparse.sampled_addmm"]().values(), sampled["products of gathered rows"]()):
        assert torch.allclose(found, other, rtol=1e-4, atol=1e-3)
    with torch.no_grad():
        yield from (about | line for line in compared("sddmm", lambda: matrix.sddmm(weights, b), sampled, device))


def arrays(device: str, name: str) -> Iterator[Line]:
    """Compare a compiled operator on CuPy's arrays with one launch by CuPy."""
    import cupy

    import spmark

    parameters = [*(f"int i{at}" for at in range(5)), *(f"float* p{at}" for at in range(8))]  # as direct's kernel has
    kernel = cupy.RawKernel(f'extern "C" __global__ void nothing({", ".join(parameters)}) {{}}', "nothing")
    b, out = cupy.asarray(torch.randn(4096, 32, device=device)), cupy.empty((4096, 32), np.float32)
    launch = partial(kernel, (1,), (32,), (*map(np.int32, range(5)), *[b] * 7, out))
    a = small_matrix(name)
    operator = spmark.compile(a, width=32, use="direct")
    operator(b, out=out)
    np.testing.assert_allclose(out.get(), a @ b.get(), rtol=1e-3, atol=1e-3)
    about = {"matrix": name, "native": operator._launches is not None and operator._launches.call((b,), out) is out}
    for line in compared("op(b, out=)", lambda: operator(b, out=out), {"a launch of CuPy": launch}, device):
        yield about | line
    allocating = {"cupy.empty and a launch": lambda: (cupy.empty((4096, 32), np.float32), launch())}
    for line in compared("op(b)", lambda: operator(b), allocating, device):
        yield about | line


def borrowed(device: str, name: str) -> Iterator[Line]:
    """Time `spmark.spmm` with a matrix that is on the GPU: the first calls, of 1 million non-zeros, and later ones."""
    import spmark

    a = sparse.random(100_000, 100_000, 1e-4, "csr", np.float32, random_state=np.random.default_rng(1))
    b, firsts = torch.randn(100_000, WIDTH, device=device), []
    for turn in range(12):
        theirs = tensor_of(a, device)
        torch.cuda.synchronize()
        began = perf_counter()
        out = spmark.spmm(theirs, b)
        returned = perf_counter()
        torch.cuda.synchronize()
        firsts.append(((returned - began) * 1e6, (perf_counter() - began) * 1e6))
        if not turn:
            assert torch.allclose(out, theirs @ b, rtol=1e-3, atol=1e-3)
            yield {"what": "first call in a process", "host_us": firsts[0][0], "us": firsts[0][1]}
    host_us, us = (median(one) for one in zip(*firsts[1:], strict=True))
    yield {"what": "first call of a matrix", "host_us": host_us, "us": us}
    small, less = tensor_of(small_matrix(name), device), torch.randn(4096, 32, device=device)
    for line in compared("later call", lambda: spmark.spmm(small, less), {"A @ b": lambda: small @ less}, device):
        yield {"matrix": name, **line}


class Kept(torch.autograd.Function):
    """PyTorch's product with a transpose that is kept, which its own backward pass makes anew."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, transposed: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Compute A B."""
        ctx.transposed = transposed
        return a @ b

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Compute A^T G."""
        return None, None, ctx.transposed @ gradients[0].contiguous()


class Network(nn.Module):
    """Two layers of Kipf and Welling, "Semi-supervised classification with graph convolutional networks", 2017."""

    def __init__(self, product: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.product = product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute A relu(A X W) W'."""
        return self.product(self.second(torch.relu(self.product(self.first(x)))))


class Pyg(nn.Module):
    """The same two layers by PyG, whose edges have the matrix's values.

    Parameters
    ----------
    given : tuple
        What stands between ``x`` and the end of a layer's arguments.
    """

    def __init__(self, *given: Any) -> None:
        from torch_geometric.nn import GCNConv  # pyright: ignore[reportMissingImports]

        super().__init__()
        self.first, self.second = (GCNConv(WIDTH, WIDTH, bias=False, normalize=False) for _ in range(2))
        self.given = given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute A relu(A X W) W'."""
        return self.second(torch.relu(self.first(x, *self.given)), *self.given)


def trained(network: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> Run:
    """Give a step of training by Adam."""
    network = network.to(x.device)
    optimizer = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), labels).backward()
        optimizer.step()

    return step


def eager(device: str, name: str) -> Iterator[Line]:
    """Compare products and steps of training on a graph with those of PyTorch and PyG."""
    from spmark.torch import SparseMatrix

    a = graph(name)
    began = perf_counter()
    matrix = SparseMatrix(a, width=WIDTH, backward=True, device=device)
    yield {"what": "planning, kernels kept", "matrix": name, "seconds": perf_counter() - began}
    theirs, transposed = tensor_of(a, device), tensor_of(a.T.tocsr(), device)
    b, weights = (torch.randn(rows, WIDTH, device=device) for rows in (a.shape[1], a.shape[0]))
    needing = b.clone().requires_grad_()
    ours = stepped(matrix.spmm, needing, weights)
    ours()
    assert torch.allclose(matrix.spmm(b), theirs @ b, rtol=1e-3, atol=1e-2)
    assert torch.allclose(needing.grad, transposed @ weights, rtol=1e-3, atol=1e-2)
    about = {"matrix": name, "native": matrix._native.spmm(matrix, b) is not NotImplemented}
    few: dict[str, Any] = {"calls": 20, "turns": 5} if device == "cuda" else {"calls": 1, "turns": 1}
    with torch.no_grad():
        for line in compared("forward", lambda: matrix.spmm(b), {"A @ b": lambda: theirs @ b}, device, **few):
            yield about | line
    others = {
        "torch.sparse.mm": stepped(lambda x: torch.sparse.mm(theirs, x), needing, weights),
        "A^T kept": stepped(lambda x: Kept.apply(theirs, transposed, x), needing, weights),
    }
    for line in compared("forward and backward", ours, others, device, **few):
        yield about | line
    x, labels = torch.randn(a.shape[1], WIDTH, device=device), torch.randint(WIDTH, (a.shape[0],), device=device)
    steps = {
        "torch.sparse": Network(lambda x: torch.sparse.mm(theirs, x)),
        "torch.sparse, A^T kept": Network(lambda x: Kept.apply(theirs, transposed, x)),
        "no product": Network(lambda x: x),
    }
    try:
        coo = a.tocoo()
        edges = torch.from_numpy(np.stack([coo.col, coo.row]).astype(np.int64)).to(device)
        steps["PyG, edge index"] = Pyg(edges, torch.from_numpy(coo.data).to(device))
        steps["PyG, sparse adjacency"] = Pyg(theirs)
    except ImportError as error:
        yield {"what": "PyG", "matrix": name, "reason": str(error)}
    runs = {label: trained(network, x, labels) for label, network in steps.items()}
    for line in compared("GCN step", trained(Network(matrix.spmm), x, labels), runs, device, **few):
        yield about | line
    for operator in matrix._operators.made.values():
        yield {"what": "plan", "matrix": name, "told": operator.explain().splitlines()}


def plan(device: str, name: str) -> Iterator[Line]:
    """Plan products with gradients in this process; the caller gives it empty caches."""
    began = perf_counter()
    from spmark.torch import SparseMatrix

    imported, a = perf_counter(), graph(name)
    if device == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
    loaded = perf_counter()
    matrix = SparseMatrix(a, width=WIDTH, backward=True, device=device)
    planned = perf_counter()
    yield {"what": "planning", "matrix": name, "import_s": imported - began, "seconds": planned - loaded}
    for operator in matrix._operators.made.values():
        yield {"what": "plan", "matrix": name, "told": operator.explain().splitlines()}


def planning(device: str, name: str) -> Iterator[Line]:
    """Plan in a process of its own without anything that an earlier one kept."""
    with tempfile.TemporaryDirectory() as folder:
        empty = {
            "SPMARK_CACHE": f"{folder}/spmark",
            "CUPY_CACHE_DIR": f"{folder}/cupy",
            "NUMBA_CACHE_DIR": f"{folder}/numba",
        }
        command = [sys.executable, __file__, "--device", device, "--plan", name]
        began = perf_counter()
        child = subprocess.run(command, env={**os.environ, **empty}, stdout=subprocess.PIPE, text=True, check=True)
        yield from map(json.loads, child.stdout.splitlines())
        yield {"what": "the whole process", "seconds": perf_counter() - began}


def summary(lines: Sequence[Line]) -> Iterator[Line]:
    """Give geometric means over all matrices of a comparison."""
    ratios: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if "speedup" in line:
            ratios.setdefault((line["what"], line["over"]), []).append(line)
    for (what, over), told in ratios.items():
        means = {name: geometric_mean(line[name] for line in told) for name in ("host_over", "speedup")}
        yield {"summary": what, "over": over, "matrices": len(told), **means}


PARTS = {"planning": planning, "host": host, "arrays": arrays, "borrowed": borrowed, "eager": eager}


def say(lines: Iterator[Line], told: list[Line]) -> None:
    """Print lines as they come, and why there are no more."""
    try:
        for line in lines:
            told.append(line)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    except Exception:
        sys.stdout.write(json.dumps({"failed": traceback.format_exc()}) + "\n")


def main() -> None:
    """Print a line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), help="source/name; the first is planned")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="arrays and borrowed need cuda")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin nothing further after so long")
    parser.add_argument("--plan", metavar="GRAPH", help="plan in this process alone")
    args = parser.parse_args()
    started, told = perf_counter(), list[Line]()
    if args.plan:
        return say(plan(args.device, args.plan), told)
    if args.device == "cuda":
        from spmark.impls.operator.native import EXTENSION

        EXTENSION.found()  # g++ beside the planning
        say(iter([{"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cores": os.cpu_count()}]), told)
    names = {"planning": args.graphs[:1], "borrowed": [ONE_LAUNCH], "eager": args.graphs}
    for part in args.parts:
        for name in names.get(part, SMALL):
            if perf_counter() - started < args.seconds:
                say(PARTS[part](args.device, name), told)
    say(summary(told), [])
    libraries = [str(file) for file in loaded_files()]
    say(iter([{"what": "all parts", "seconds": perf_counter() - started, "cusparse": libraries}]), [])


if __name__ == "__main__":
    main()
