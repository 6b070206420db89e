"""PyTorch Geometric's aggregation: messages of all edges, then their sums by ``segment`` or ``scatter``.

A is the graph whose edge k -> i with the weight A[i, k] sends row k of B to i. Fey and Lenssen, "Fast Graph
Representation Learning with PyTorch Geometric", arXiv:1903.02428.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices, not_installed
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.withtorch import Tensor, TorchPlan, torch_missing


@dataclass(frozen=True)
class Pyg:
    """PyTorch Geometric's sums over edges, which hold a message for every non-zero in memory."""

    name: ClassVar[str] = "pyg"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU, DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch", "torch_geometric")
    extra: ClassVar[str] = "pyg"

    reduce: str = "segment"
    """``segment``: sums over the edges of a row, which are sorted; ``scatter``: sums by each edge's row."""

    def __post_init__(self) -> None:
        check_choices(self, reduce=("segment", "scatter"))

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse what is rounded to float16 before it is added; say what is not installed."""
        if problem.dtype is not DType.FLOAT32:
            return f"PyTorch Geometric rounds every message to {problem.dtype}"
        return not_installed(self.needs, self.extra) or torch_missing(device.kind)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Upload edges with 64-bit numbers, as PyTorch Geometric has them."""
        return _Plan(problem, device.kind, self.reduce)


class _Plan(TorchPlan):
    def __init__(self, problem: Problem, kind: DeviceKind, reduce: str) -> None:
        super().__init__(problem, kind)
        self.config, self.deterministic = {"reduce": reduce}, kind is DeviceKind.CPU
        matrix = problem.matrix
        with self.phase("convert"):
            ends = matrix.indptr if reduce == "segment" else matrix.rows_of_entries()
        self._sources, self._ends = (self.upload(one.astype(np.int64)) for one in (matrix.indices, ends))
        self._weights = self.upload(problem.values).unsqueeze(-1)

    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        from torch_geometric.utils import scatter, segment  # pyright: ignore[reportMissingImports]

        messages = operands[0][self._sources] * self._weights
        if self.config["reduce"] == "segment":
            out.copy_(segment(messages, self._ends, reduce="sum"))
        else:
            out.copy_(scatter(messages, self._ends, dim=0, dim_size=out.shape[0], reduce="sum"))
