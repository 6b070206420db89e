"""Networks: every library computes what float64 does, step by step, and what leaves a part out is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import assert_same
from scipy import sparse

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sources.minkunet import LAYERS
from spmark.impls.core.errors import BuildError, ProblemError, SweepError
from spmark.impls.core.network import GRAPH_NETWORKS, RELATIONAL_NETWORKS, NetworkOp, NetworkProblem
from spmark.impls.core.problem import Csr, DType
from spmark.impls.core.pruned import PrunedNetwork
from spmark.impls.runtime.device import find
from spmark.impls.table import NETWORKS, create
from spmark.records.schema import MatrixSource

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402 (needs PyTorch)

from spmark.impls.networks.models import bert, libraries, resnet  # noqa: E402 (needs PyTorch)

VOXELS = {"source": "minkunet", "name": "drawn/voxels", "values": "stored"}
SIZES = {
    NetworkOp.GRAPHSAGE: ("graph", 33, 7),
    NetworkOp.GCN: ("graph", 33, 7),
    NetworkOp.RGCN: ("relations", 16, 8),
    NetworkOp.MINKUNET: ("voxels", 4, 5),
    "bert": ("bert_2x128@0.9", 16, 2),
    NetworkOp.PRUNED_TRAINING: ("bert_1x128@0.9", 16, 2),
    "resnet": ("resnet14@0.9", 32, 2),
    NetworkOp.ATTENTION: ("band_64", 2, 32),
}
"""The matrix, width_in and width of a small problem of each op; of a forward pass two."""
OP_OF = {at: at if isinstance(at, NetworkOp) else NetworkOp.PRUNED_FORWARD for at in SIZES}
FORMS = [
    pytest.param(name, at, kind, mode, id=f"{name}-{at}-{kind}-{mode}", marks=[pytest.mark.gpu] if on_gpu else [])
    for name in NETWORKS
    for at, op in OP_OF.items()
    for kind, on_gpu, modes in (("cpu", False, ("eager",)), ("cuda", True, ("eager", "graph")))
    for mode in modes
    if op in create(name).ops and kind in create(name).devices
]


def problem_of(at: str, dtype: DType = DType.FLOAT32) -> NetworkProblem:
    (name, width_in, width), op = SIZES[at], OP_OF[at]
    if name == "relations":
        rng = np.random.default_rng(4)
        edges = rng.random((70, 6 * 70)) < 0.02
        edges[4], edges[:, 70:140] = False, False  # a node that nobody sends to, and a relation without edges
        matrix = Csr.of(sparse.csr_array(edges.astype(np.float32)))
        return NetworkProblem(op, name, matrix, width_in, width, dtype, 1, relations=6)
    if name == "voxels":
        voxels = np.unique(np.random.default_rng(5).integers(16, 40, (300, 3)), axis=0).astype(np.float32)
        return NetworkProblem(op, name, Csr.of(sparse.csr_array(voxels)), width_in, width, dtype, 1)
    if name == "graph":
        rng = np.random.default_rng(3)
        edges = rng.random((90, 90)) < 0.05
        edges[4], edges[:, 6] = False, False  # a node that nobody sends to, and one that sends to nobody
        return NetworkProblem(op, name, Csr.of(sparse.csr_array(edges.astype(np.float32))), width_in, width, dtype, 1)
    masks = {"source": "patterns", "args": {"heads": width_in}} if name.startswith("band") else {}
    spec = MatrixSource.model_validate({"source": "pruned_networks", "name": name} | masks)
    return NetworkProblem(op, name, load_matrix(spec, Cache.default(), 1).csr, width_in, width, dtype, 1)


def build(name: str, problem: NetworkProblem, kind: str = "cpu", **config: Any) -> Any:
    how, device = create(name, config), find(kind)
    reason = how.unsupported(problem, device)
    if reason is not None:
        pytest.skip(reason)
    return how.build(problem, device)


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, str], Any]:
    """Keep what each op should compute, which the first library that asks computes."""
    return {}


@pytest.mark.parametrize(("name", "at", "kind", "mode"), FORMS)
def test_a_library_computes_what_float64_does(
    name: str, at: str, kind: str, mode: str, expected: dict[tuple[str, str], Any]
) -> None:
    plan = build(name, problem_of(at), kind, mode=mode)
    if (at, kind) not in expected:  # masks of dropout are a device's own
        expected[at, kind] = plan.expected()
    error, allowed = plan.error(expected[at, kind])
    assert error <= allowed
    assert plan.error(expected[at, kind])[0] <= allowed, "it begins anew"
    for part in plan.parts.values():
        part()


WITH_GRADIENTS = (*GRAPH_NETWORKS, NetworkOp.PRUNED_TRAINING, NetworkOp.ATTENTION)


@pytest.mark.parametrize(
    ("spoilt", "at"),
    [*((False, at) for at in SIZES if at not in RELATIONAL_NETWORKS), *((True, at) for at in WITH_GRADIENTS)],
)
def test_a_missing_row_of_a_product_is_seen(spoilt: bool, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = build("torch_network", problem_of(at))
    expected, right = plan.expected(), libraries._TorchMatrix.times

    def wrong(matrix: Any, b: Any, values: Any, turned: bool = False) -> Any:
        found = right(matrix, b, values, turned)
        return found * (torch.arange(len(found)) != 11)[:, None] if turned is spoilt else found

    monkeypatch.setattr(libraries._TorchMatrix, "times", wrong)
    error, allowed = plan.error(expected)
    assert error > allowed


@pytest.mark.parametrize("at", RELATIONAL_NETWORKS)
def test_a_missing_row_of_a_relational_layer_is_seen(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = build("torch_network", problem_of(at))
    expected, right = plan.expected(), libraries.TorchSparse.relational

    def wrong(library: Any, graph: Any, weights: Any) -> Any:
        kept = (torch.arange(graph.num_rows) != 11)[:, None]
        return [lambda x, layer=layer: layer(x) * kept for layer in right(library, graph, weights)]

    monkeypatch.setattr(libraries.TorchSparse, "relational", wrong)
    error, allowed = build("torch_network", problem_of(at)).error(expected)
    assert error > allowed


def test_minkunet_has_the_convolutions_that_its_layers_are() -> None:
    """Its maps are those of the scan, although coordinates are moved; it has each layer as often as the source says."""
    matrix = load_matrix(MatrixSource.model_validate(VOXELS), Cache.default(), 0).csr
    problem = NetworkProblem(NetworkOp.MINKUNET, VOXELS["name"], matrix, 4, 19, DType.FLOAT16, 0)
    times = Counter(problem.convolutions)
    assert times.pop(("l0", 4, 32)) == 1
    assert times == {layer[:3]: sum(one.times for one in LAYERS if one[:3] == layer[:3]) for layer in LAYERS}
    for which in ("l0", "l3", "down4", "up1"):
        spec = MatrixSource.model_validate(VOXELS | {"name": f"drawn/{which}"})
        assert_same(problem.maps[which].wide, load_matrix(spec, Cache.default(), 0).csr)


@pytest.mark.parametrize(("at", "others"), [("bert", 0), (NetworkOp.PRUNED_TRAINING, 0), ("resnet", 17_825_792)])
def test_flops_are_those_of_the_weights_that_are_kept(at: str, others: int) -> None:
    """The layers with their zeros take ten times as many; ResNet's first and last layer are no pruned ones."""
    problem = problem_of(at)
    step = (resnet if at == "resnet" else bert).step(problem, libraries.Dense(find("cpu"), torch.float32), "eager")
    with FlopCounterMode(display=False) as counted:
        step.run()
    assert counted.get_total_flops() - others == pytest.approx(10 * problem.flops(), rel=1e-3)


def test_what_is_refused() -> None:
    cpu = find("cpu")
    for name, at, config, dtype, reason in (
        ("torch_network", NetworkOp.GCN, {"mode": "graph"}, DType.FLOAT32, "expected a GPU for mode graph"),
        ("torch_network", NetworkOp.GCN, {}, DType.FLOAT16, "expected float32, in which networks are trained here"),
    ):
        assert reason in str(create(name, config).unsupported(problem_of(at, dtype), cpu))
    trained = replace(problem_of("resnet"), op=NetworkOp.PRUNED_TRAINING)
    assert "expected BERT" in str(create("dense_network").unsupported(trained, cpu))
    with pytest.raises(SweepError, match="expected mode out of eager, compile, graph, compile_graph, found 'quick'"):
        create("dense_network", {"mode": "quick"})
    with pytest.raises(SweepError, match="expected use rgms_hyb where tuned is false, found auto"):
        create("spmark_network", {"tuned": False})
    with pytest.raises(BuildError, match="rgms_hyb: expected rgms on cpu"):  # and takes no other in its place
        build("spmark_network", problem_of(NetworkOp.RGCN), use="rgms_hyb", tuned=False)
    with pytest.raises(ProblemError, match=r"expected the weights of a pruned network, .* found the matrix 'graph'"):
        replace(problem_of("bert"), name="graph").flops()
    with pytest.raises(
        ProblemError, match=r"minkunet: expected a row of three whole numbers for each voxel, .* \(70, 420\)"
    ):
        replace(problem_of(NetworkOp.RGCN), op=NetworkOp.MINKUNET).flops()
    with pytest.raises(ProblemError, match=r"bert_1x128@0.9: expected weights of shape \(1152, 896\), found"):
        PrunedNetwork.of("bert_1x128@0.9").parts(problem_of("bert").matrix)


@pytest.mark.full
@pytest.mark.parametrize("at", [NetworkOp.GRAPHSAGE, "bert"])
def test_a_compiled_step_computes_the_same(at: str) -> None:
    plan = build("spmark_network", problem_of(at), mode="compile")
    error, allowed = plan.error(plan.expected())
    assert error <= allowed


@pytest.mark.full
def test_a_step_is_compiled_whatever_was_compiled_before() -> None:
    """PyTorch's sparse tensors cannot be compiled; spmark's products are part of one graph."""
    from torch._dynamo.utils import counters

    build("torch_network", problem_of(NetworkOp.GRAPHSAGE), mode="compile")
    counters.clear()
    build("spmark_network", problem_of(NetworkOp.GRAPHSAGE), mode="compile")
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
