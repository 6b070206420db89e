"""PyTorch Geometric's layers of relational graph networks, after Schlichtkrull et al., ESWC 2018.

Their edges have no values: a layer takes the sum over the edges of a relation and row, or their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices, not_installed
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.runtime.withtorch import Tensor, TorchPlan, load_torch, torch_missing


@dataclass(frozen=True)
class PygRgcn:
    """PyTorch Geometric's ``RGCNConv``, a product for each relation, or ``FastRGCNConv``, a matrix for each edge."""

    name: ClassVar[str] = "pyg_rgcn"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU, DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch", "torch_geometric")
    extra: ClassVar[str] = "pyg"

    layer: str = "RGCNConv"
    """``RGCNConv`` or ``FastRGCNConv``, which copies the weights of its relation for every edge."""

    def __post_init__(self) -> None:
        check_choices(self, layer=("RGCNConv", "FastRGCNConv"))

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse values that are neither those of a sum nor of a mean; say what is not installed."""
        if lacking := not_installed(self.needs, self.extra):
            return lacking
        if _aggregate(problem) is None:
            return (
                "expected values that are all 1, or 1 over the edges of a relation and row, as PyTorch Geometric's "
                "layers have them, found others: say values: stored where the source has such values"
            )
        return torch_missing(device.kind)

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Upload edges with 64-bit numbers, as PyTorch Geometric has them."""
        return _Plan(problem, device.kind, self.layer)


def _aggregate(problem: RelationalProblem) -> str | None:
    """Give what the layer does with the edges of a relation and row, by A's values; None where it cannot give them."""
    matrix, dtype = problem.matrix, problem.dtype
    values = dtype.numbers(problem.values)
    if (values == 1).all():
        return "add"
    relation, rows, _ = matrix.edges
    pairs = relation.astype(np.int64) * matrix.num_rows + rows
    _, pair, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    means = dtype.numbers(dtype.stored((1 / counts)[pair].astype(np.float32)))
    return "mean" if (values == means).all() else None


class _Plan(TorchPlan):
    def __init__(self, problem: RelationalProblem, kind: DeviceKind, layer: str) -> None:
        from torch_geometric import nn  # pyright: ignore[reportMissingImports]

        super().__init__(problem, kind)
        self.config, self.deterministic = {"layer": layer}, kind is DeviceKind.CPU
        self.half_sums = problem.dtype.narrow
        matrix, torch = problem.matrix, load_torch()
        relation, rows, cols = (each.astype(np.int64) for each in matrix.edges)
        with self.phase("convert"):
            sizes = problem.width_in, problem.width_out, matrix.relations
            how = {"aggr": _aggregate(problem), "root_weight": False, "bias": False}
            self._layer = getattr(nn, layer)(*sizes, **how).to(self.place).requires_grad_(False)
            self._rows = torch.empty((matrix.num_rows, 0), dtype=getattr(torch, problem.dtype), device=self.place)
        self._edges, self._relation = self.upload(np.stack([cols, rows])), self.upload(relation)

    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        x, self._layer.weight.data = operands
        # Of the rows of the result the layer asks their number alone, since no root has weights.
        out.copy_(self._layer((x, self._rows), self._edges, self._relation))
