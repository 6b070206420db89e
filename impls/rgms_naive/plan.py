"""RGMS one relation after the other: the rows of a relation are summed, multiplied by its weights and added to Y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.core.operands import HostPlan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_hyb import RelationalHyb
from spmark.impls.kernels.relational_hyb import FLOAT_TILE, RGMS_HYB, RGMS_HYB_FLOAT, RelationalHybPlan
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.runtime.target import open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate


@dataclass(frozen=True)
class RgmsNaive:
    """A product for each relation: launches of the fused kernel on a GPU, SciPy and a matrix product on a CPU."""

    name: ClassVar[str] = "rgms_naive"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset(DeviceKind)
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (RGMS_HYB, RGMS_HYB_FLOAT, ROUND_SHARED_ROWS)

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        if device.kind is DeviceKind.CPU:
            return None
        return too_wide(problem.width_out, _schedule(problem).get("tile", FLOAT_TILE), "width_out")

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Sort edges by relation."""
        if device.kind is DeviceKind.CPU:
            return _OnHost(problem)
        own = Built()
        with own.phase("convert"):
            held = RelationalHyb.of(problem.matrix, _slots(problem))
        plan = RelationalHybPlan(problem, open_target(device), held, {}, apart=True, **_schedule(problem))
        plan.charge(own.phases_s)
        return plan


def _slots(problem: RelationalProblem) -> int:
    return 64 if problem.dtype.narrow else 32


def _schedule(problem: RelationalProblem) -> dict[str, Any]:
    return {"ordered": False} | ({"tile": 64, "depth": 32} if problem.dtype.narrow else {})


class _OnHost(HostPlan):
    def __init__(self, problem: RelationalProblem) -> None:
        super().__init__(stored=problem.matrix.nnz)
        matrix = problem.matrix
        with self.phase("convert"):
            order, bounds = matrix.by_relation
            _, rows, cols = (each[order] for each in matrix.edges)
            values = problem.dtype.numbers(problem.values[order]).astype(np.float32, copy=False)
            self._relations = []
            for r in np.flatnonzero(np.diff(bounds)):
                part = slice(bounds[r], bounds[r + 1])
                touched, at = np.unique(rows[part], return_inverse=True)
                shape = touched.size, matrix.num_cols
                self._relations.append((int(r), touched, sparse.csr_array((values[part], (at, cols[part])), shape)))
            self.hold(problem, *(one for _, rows, a in self._relations for one in (rows, a.data, a.indices, a.indptr)))

    def compute(self, x: Any, w: Any, result: Any) -> None:
        """Compute Y; SciPy allocates the rows of one relation at a time."""
        result.fill(0)
        for relation, rows, matrix in self._relations:
            result[rows] += (matrix @ x) @ w[relation]
