"""What a person would take instead: plans over libraries that this machine may lack, with stand-ins in their place."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from problems import problems
from relational import relational_problems

from spmark.impls.core import errors
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import DType, Problem
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.cupyx.plan import Cupyx
from spmark.impls.dgl.relational import DglRgcn
from spmark.impls.nvmath.plan import NvMath
from spmark.impls.pyg import relational as pyg_relational
from spmark.impls.pyg.plan import Pyg
from spmark.impls.pyg.relational import PygRgcn
from spmark.impls.runtime.device import find
from spmark.suite.conformance import Place, check_account, check_result

CASES = [f"spmm-{matrix}-J{width}-float32" for matrix, width in (("hub", 32), ("empty_rows", 33), ("no_nonzeros", 32))]


def stand_in(monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> None:
    for name, members in modules.items():
        module = ModuleType(name := name.replace("__", "."))
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def cupyx(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, cupyx={}, cupyx__scipy={"sparse": scipy.sparse})


class Matmul:
    """Stands for nvmath's, which reads and writes the arrays that it was given last."""

    def __init__(self, a: Any, b: Any, c: Any, *, beta: float) -> None:
        assert beta == 0.0
        self.a, self.b, self.c, self.planned = a, b, c, False

    def plan(self) -> None:
        self.planned = True

    def reset_operands_unchecked(self, *, b: Any, c: Any) -> None:
        self.b, self.c = b, c

    def execute(self) -> None:
        assert self.planned
        self.c[...] = self.a @ self.b

    def free(self) -> None:
        self.planned = False


@pytest.fixture
def nvmath(cupyx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, nvmath={}, nvmath__sparse={"Matmul": Matmul})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("how", [Cupyx(), NvMath()], ids=["cupyx", "nvmath"])
@pytest.mark.usefixtures("nvmath")
def test_on_gpus_the_product_is_in_the_callers_result(how: Cupyx | NvMath, case: str) -> None:
    problem, place = problems()[case], Place(find("host-simt"))
    plan = how.build(problem, place.spec)
    check_account(plan, problem)
    check_result(plan, problem, place)
    check_result(plan, problem, place)


def test_what_they_do_not_take_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA})
    half, whole = (problems()[f"spmm-hub-J32-{dtype}"] for dtype in (DType.FLOAT16, DType.FLOAT32))
    assert Cupyx().unsupported(half, gpu) == "cupyx.scipy.sparse has no float16"
    assert Cupyx().unsupported(whole, gpu) is None
    assert NvMath().unsupported(half, gpu) == "cupyx.scipy.sparse, which holds A, has no float16"
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    assert NvMath().unsupported(whole, gpu) == "nvmath is not installed: pip install -e '.[nvmath]' in a checkout"
    none = problems()["spmm-no_nonzeros-J32-float32"]
    assert NvMath().unsupported(none, gpu) == "cuSPARSE takes no matrix without non-zeros"
    assert Pyg().unsupported(half, gpu) == "PyTorch Geometric rounds every message to float16"
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    assert (
        Pyg().unsupported(whole, gpu)
        == "torch and torch_geometric are not installed: pip install -e '.[pyg]' in a checkout"
    )
    with pytest.raises(ValueError, match="expected reduce out of segment, scatter, found 'gather'"):
        Pyg(reduce="gather")


@pytest.fixture
def torch_geometric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put PyTorch's own sums in the place of the package where it is not installed."""
    torch = pytest.importorskip("torch")
    if find_spec("torch_geometric"):
        return

    def segment(src: Any, ptr: Any, reduce: str) -> Any:
        return torch.segment_reduce(src, reduce, offsets=ptr, initial=0)

    def scatter(src: Any, index: Any, dim: int, dim_size: int, reduce: str) -> Any:
        return src.new_zeros(dim_size, src.shape[1]).index_add_(dim, index, src)

    stand_in(monkeypatch, torch_geometric={}, torch_geometric__utils={"segment": segment, "scatter": scatter})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reduce", ["segment", "scatter"])
@pytest.mark.usefixtures("torch_geometric")
def test_messages_are_summed_by_either_way(reduce: str, case: str) -> None:
    problem, place = problems()[case], Place(find("cpu"))
    plan = Pyg(reduce=reduce).build(problem, place.spec)
    assert plan.config == {"reduce": reduce}
    check_account(plan, problem)
    check_result(plan, problem, place)


@pytest.mark.usefixtures("torch_geometric")
def test_an_edge_costs_two_numbers_and_a_weight() -> None:
    problem: Problem = problems()["spmm-hub-J32-float32"]
    edges, rows = problem.matrix.nnz, problem.matrix.num_rows
    assert Pyg(reduce="scatter").build(problem, find("cpu")).device_bytes == edges * (8 + 8 + 4)
    assert Pyg().build(problem, find("cpu")).device_bytes == edges * (8 + 4) + (rows + 1) * 8


def test_layers_of_relational_networks_say_what_they_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, made = find("cpu"), relational_problems((5, 3))
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    told = PygRgcn().unsupported(made["kernel_map-5-3-float32"], cpu)
    assert told == "torch and torch_geometric are not installed: pip install -e '.[pyg]' in a checkout"
    monkeypatch.setattr(errors, "find_spec", lambda name: name)
    told = PygRgcn().unsupported(made["hub-5-3-float32"], cpu)
    assert str(told).startswith("expected values that are all 1, or 1 over the edges of a relation and row")
    assert DglRgcn().unsupported(made["hub-5-3-float16"], cpu) == "DGL has no float16 on the CPU"
    with pytest.raises(ValueError, match="expected layer out of RGCNConv, FastRGCNConv, found 'GCNConv'"):
        PygRgcn(layer="GCNConv")


@pytest.mark.parametrize("dtype", list(DType))
def test_a_mean_over_edges_is_told_by_values(dtype: DType) -> None:
    edges = [0, 0, 0, 1], [1, 1, 1, 1], [0, 2, 3, 0]
    for values, aggregate in (([1, 1, 1, 1], "add"), ([1 / 3, 1 / 3, 1 / 3, 1], "mean"), ([0.5, 0.5, 0.5, 1], None)):
        matrix = RelationalCsr.of_edges((2, 4), 2, edges, np.float32(values))
        assert pyg_relational._aggregate(RelationalProblem(matrix, 3, 2, dtype)) == aggregate
