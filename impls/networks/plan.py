"""Networks by the library that computes their sparse layers; everything else in them is PyTorch's and the same for all.

A plan's run is a step. The check begins anew and compares what a few steps compute with the network in float64, whose
pruned layers are dense and whose products with a graph are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices, not_installed
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.network import GRAPH_NETWORKS, RELATIONAL_NETWORKS, NetworkOp, NetworkProblem
from spmark.impls.core.problem import DType
from spmark.impls.runtime.withtorch import load_torch, torch_missing

if TYPE_CHECKING:
    from spmark.impls.networks.models.libraries import Library
    from spmark.impls.networks.models.step import Step

MODES = ("eager", "compile", "graph", "compile_graph")
_TRAINING = (*GRAPH_NETWORKS, NetworkOp.PRUNED_TRAINING)
_STEPS = 5
"""Steps of training that are compared."""
_ALLOWED_LOSS = 1e-3
"""Largest relative error of a loss, and of the norm of a parameter's gradient."""
_ALLOWED = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest error of outputs over the outputs, both by their Euclidean norm; one row of 4,096 left out has 1.6e-2."""


class NetworkPlan(Plan):
    """A step of a network on one device."""

    def __init__(self, problem: NetworkProblem, library: Library, mode: str, tf32: bool) -> None:
        super().__init__(config={"mode": mode}, stored=problem.matrix.nnz)
        self._problem, self._tf32, self._device = problem, tf32, library.device
        with _settings(tf32), self.phase("convert"):
            self._step = _made(problem, library, mode)
        with _settings(tf32), self.phase("compile"):
            self._step.prepare()

    def run(self, operands: Sequence[Any] = (), out: Any = None) -> None:
        """Enqueue one step.

        Raises
        ------
        MemoryError
            PyTorch ran out of memory.
        """
        with _settings(self._tf32):
            self._step.run()

    @property
    def parts(self) -> Mapping[str, Callable[[], Any]]:
        """The step's sparse layers, each on its own."""
        return {name: partial(self._part, part) for name, part in self._step.parts.items()}

    def _part(self, part: Callable[[], Any]) -> None:
        with _settings(self._tf32):
            part()

    def expected(self) -> NDArray[np.float64]:
        """Give what the first steps should compute: losses and the first gradients' norms, or the results of a pass.

        Parameters and inputs are those of the problem's dtype; all else is float64.
        """
        from spmark.impls.networks.models.libraries import Dense, TorchSparse

        torch, problem = load_torch(), self._problem
        kind = TorchSparse if problem.op in (*GRAPH_NETWORKS, *RELATIONAL_NETWORKS) else Dense
        library = kind(self._device, torch.float64)
        library.rounded = getattr(torch, problem.dtype)
        with _settings(False, tuned=False):
            return _outputs(_made(problem, library, "eager"), problem.op)

    def error(self, expected: NDArray[np.float64]) -> tuple[float, float]:
        """Begin anew, and give how far the first steps are from what is expected, and how far they may be.

        The error is infinite where a number is NaN.
        """
        with _settings(self._tf32):
            found = _outputs(self._step, self._problem.op)
        if self._problem.op in _TRAINING:
            error = float(np.max(np.abs(found / expected - 1)))
            allowed = _ALLOWED["tf32"] if self._tf32 else _ALLOWED_LOSS
        else:
            error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
            allowed = _ALLOWED["tf32" if self._tf32 else self._problem.dtype]
        return (error if np.isfinite(error) else float("inf")), allowed


def _outputs(step: Step, op: NetworkOp) -> NDArray[np.float64]:
    step.restart()
    step.run()
    found = [step.found()]
    if op in _TRAINING:
        found.append(step.gradients())
        for _ in range(_STEPS - 1):
            step.run()
            found.append(step.found())
    return np.concatenate(found)


@contextmanager
def _settings(tf32: bool, tuned: bool = True) -> Iterator[None]:
    """Let float32 be TF32 or not, and cuDNN try its algorithms; PyTorch's lack of memory is Python's."""
    torch = load_torch()
    torch.backends.cudnn.benchmark = tuned
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error
    finally:
        torch.set_float32_matmul_precision("highest")


def _made(problem: NetworkProblem, library: Library, mode: str) -> Step:
    from spmark.impls.networks.models import attention, bert, graphs, minkunet, resnet, rgcn

    if problem.op in GRAPH_NETWORKS:
        make = graphs.step
    elif problem.op is NetworkOp.RGCN:
        make = rgcn.step
    elif problem.op is NetworkOp.MINKUNET:
        make = minkunet.step
    elif problem.op is NetworkOp.ATTENTION:
        make = attention.step
    else:
        make = resnet.step if problem.pruned.blocks else bert.step
    if library.place.startswith("cuda"):
        load_torch().cuda.empty_cache()  # memory of the network before
    return make(problem, library, mode)


@dataclass(frozen=True)
class _Network:
    """What all networks have; subclasses name their library, which looks at tunables of theirs."""

    library: ClassVar[str]
    """Class of `spmark.impls.networks.models.libraries`, which alone imports PyTorch."""

    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU, DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar[str] = "torch"

    mode: str = "eager"
    """``eager``, ``compile`` (`torch.compile` of the forward pass), ``graph``, a step as one CUDA graph, or both."""

    def __post_init__(self) -> None:
        check_choices(self, mode=MODES)

    def unsupported(self, problem: NetworkProblem, device: DeviceSpec) -> str | None:
        """Refuse graphs on a CPU, types that a network is not trained in, and what is not installed."""
        if lacking := not_installed(self.needs, self.extra):
            return lacking
        if "graph" in self.mode and device.kind is not DeviceKind.CUDA:
            return f"expected a GPU for mode {self.mode}, a CUDA graph, found a CPU"
        if problem.dtype.narrow and problem.op in _TRAINING:
            return f"expected float32, in which networks are trained here, found {problem.dtype}"
        if problem.op is NetworkOp.PRUNED_TRAINING and problem.pruned.blocks:
            return "expected BERT, which is trained here, found ResNet"
        return torch_missing(device.kind)

    def build(self, problem: NetworkProblem, device: DeviceSpec) -> Plan:
        """Make the network, plan its products and capture its step."""
        make = getattr(import_module("spmark.impls.networks.models.libraries"), self.library)
        library: Library = make(device, getattr(load_torch(), problem.dtype), self)
        return NetworkPlan(problem, library, self.mode, getattr(self, "tf32", False))


@dataclass(frozen=True)
class SpmarkNetwork(_Network):
    """Sparse layers by `spmark.torch`."""

    name: ClassVar[str] = "spmark_network"
    library: ClassVar[str] = "Spmark"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset(NetworkOp)

    use: str = "auto"
    """The implementation of the products, as `spmark.compile` takes it."""
    budget_s: float = 0.0
    """Seconds of its race for each product; 0 measures nothing, and takes the choice by rule."""
    tuned: bool = True
    """Of ``rgcn`` and ``minkunet`` with ``use`` ``rgms_hyb``: measure schedules; otherwise take the published ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tuned and self.use != "rgms_hyb":
            raise ValueError(f"expected use rgms_hyb where tuned is false, found {self.use}")


@dataclass(frozen=True)
class TorchNetwork(_Network):
    """Sparse layers by PyTorch's CSR, which calls cuSPARSE on a GPU."""

    name: ClassVar[str] = "torch_network"
    library: ClassVar[str] = "TorchSparse"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset(NetworkOp)


@dataclass(frozen=True)
class PygNetwork(_Network):
    """Graph networks by PyTorch Geometric's message passing and its layers of RGCN."""

    name: ClassVar[str] = "pyg_network"
    library: ClassVar[str] = "Pyg"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset({*GRAPH_NETWORKS, NetworkOp.RGCN})
    needs: ClassVar[tuple[str, ...]] = ("torch", "torch_geometric")
    extra: ClassVar[str] = "pyg"

    layer: str = "RGCNConv"
    """Of ``rgcn``: ``RGCNConv`` or ``FastRGCNConv``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, layer=("RGCNConv", "FastRGCNConv"))

    def unsupported(self, problem: NetworkProblem, device: DeviceSpec) -> str | None:
        """Refuse a CUDA graph of a layer that asks the GPU for a number."""
        if problem.op is NetworkOp.RGCN and self.layer == "RGCNConv" and "graph" in self.mode:
            return "expected mode eager or compile, or layer FastRGCNConv: RGCNConv reads a size back from the GPU"
        return super().unsupported(problem, device)


@dataclass(frozen=True)
class DglNetwork(_Network):
    """Graph networks by DGL's products, where a build of DGL for the device is installed."""

    name: ClassVar[str] = "dgl_network"
    library: ClassVar[str] = "Dgl"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset({*GRAPH_NETWORKS, NetworkOp.RGCN})
    needs: ClassVar[tuple[str, ...]] = ("torch", "dgl")
    extra: ClassVar[str] = "dgl"

    def unsupported(self, problem: NetworkProblem, device: DeviceSpec) -> str | None:
        """Say which type DGL refuses, or what is not installed; the first call imports DGL (seconds)."""
        from spmark.impls.dgl.plan import refused

        return super().unsupported(problem, device) or refused(problem.dtype, device.kind)


@dataclass(frozen=True)
class DenseNetwork(_Network):
    """Pruned layers with their zeros, by cuBLAS and cuDNN on a GPU; attention with a dense mask."""

    name: ClassVar[str] = "dense_network"
    library: ClassVar[str] = "Dense"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset(
        {NetworkOp.PRUNED_FORWARD, NetworkOp.PRUNED_TRAINING, NetworkOp.ATTENTION}
    )

    tf32: bool = False
    """Whether float32 is TF32 on the matrix unit."""


@dataclass(frozen=True)
class LoSpmmNetwork(_Network):
    """Pruned layers by LO-SpMM's fused kernels: bias and ReLU in registers, convolutions without im2col."""

    name: ClassVar[str] = "lo_spmm_network"
    library: ClassVar[str] = "LoSpmm"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset({NetworkOp.PRUNED_FORWARD})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})

    def unsupported(self, problem: NetworkProblem, device: DeviceSpec) -> str | None:
        """Refuse what the kernels do not have, which PyTorch cannot compile either."""
        if problem.dtype is not DType.FLOAT32:
            return f"expected float32, found {problem.dtype}"
        if "compile" in self.mode:
            return "expected mode eager or graph: PyTorch does not know what the kernels do"
        return super().unsupported(problem, device)


@dataclass(frozen=True)
class FlexNetwork(_Network):
    """Attention by PyTorch's FlexAttention, which `torch.compile` makes a kernel of."""

    name: ClassVar[str] = "flex_network"
    library: ClassVar[str] = "Flex"
    ops: ClassVar[frozenset[NetworkOp]] = frozenset({NetworkOp.ATTENTION})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
