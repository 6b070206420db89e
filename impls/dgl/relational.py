"""DGL's layer of relational graph networks, ``RelGraphConv`` (Schlichtkrull et al., ESWC 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.dgl.plan import Dgl, load_dgl, refused
from spmark.impls.runtime.withtorch import Tensor, TorchPlan


@dataclass(frozen=True)
class DglRgcn:
    """DGL's ``RelGraphConv``: messages of edges that are sorted by relation, then their sums."""

    name: ClassVar[str] = "dgl_rgcn"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = Dgl.devices
    needs: ClassVar[tuple[str, ...]] = ("torch", "dgl")
    extra: ClassVar[str] = "dgl"

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Say which type DGL refuses, or what is not installed; the first call imports DGL (seconds)."""
        return refused(problem.dtype, device.kind)

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Make the graph, with A's values as norms of its edges."""
        return _Plan(problem, device.kind)


class _Plan(TorchPlan):
    def __init__(self, problem: RelationalProblem, kind: DeviceKind) -> None:
        super().__init__(problem, kind)
        self.deterministic, self.half_sums = kind is DeviceKind.CPU, problem.dtype is DType.FLOAT16
        dgl, matrix = load_dgl(), problem.matrix
        from dgl.nn.pytorch import RelGraphConv

        with self.phase("convert"):
            order, _ = matrix.by_relation
            relation, rows, cols = (each[order].astype(np.int64) for each in matrix.edges)
            sizes = problem.width_in, problem.width_out, matrix.relations
            layer = RelGraphConv(*sizes, bias=False, self_loop=False).to(self.place)
            self._layer = layer.requires_grad_(False)
        with self.phase("upload"):
            edges, self._relation = (self.upload(cols), self.upload(rows)), self.upload(relation)
            self._norms = self.upload(problem.values[order]).unsqueeze(-1)
            counts = {"col": matrix.num_cols, "row": matrix.num_rows}
            self._graph = dgl.heterograph({("col", "a", "row"): edges}, counts, device=self.place)

    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        x, self._layer.linear_r.W.data = operands
        out.copy_(self._layer(self._graph, x, self._relation, self._norms, presorted=True))
