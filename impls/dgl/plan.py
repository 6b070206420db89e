"""DGL's own SpMM and SDDMM (the kernels behind ``u_mul_e_sum`` and ``u_dot_v``), as graph learning uses them today.

A is the graph whose edge k -> i stands for A[i, k]. Wang et al., "Deep Graph Library: A Graph-Centric,
Highly-Performant Package for Graph Neural Networks", arXiv:1909.01315.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, not_installed
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.withtorch import Tensor, TorchPlan, load_torch, torch_missing

_SRC, _DST = 0, 2


@dataclass(frozen=True)
class Dgl:
    """DGL on the CPU, and on a GPU where a CUDA build of DGL is installed."""

    name: ClassVar[str] = "dgl"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU, DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch", "dgl")
    extra: ClassVar[str] = "dgl"

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Say which part of the problem DGL refuses, or what is not installed; the first call imports DGL (seconds)."""
        if problem.scaled:
            return "DGL's u_dot_v does not multiply by A"
        return refused(problem.dtype, device.kind)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Make the graph in the one format that DGL's kernel reads: CSC for SpMM, COO for SDDMM.

        Raises
        ------
        BuildError
            DGL is missing or refuses the graph.
        """
        if reason := self.unsupported(problem, device):
            raise BuildError(f"dgl: {reason}")
        try:
            return _Plan(problem, device.kind)
        except load_dgl().DGLError as error:
            raise BuildError(f"dgl: {error}") from error


class _Plan(TorchPlan):
    def __init__(self, problem: Problem, kind: DeviceKind) -> None:
        super().__init__(problem, kind)
        self._op = problem.op
        with self.phase("convert"):
            self._graph, self.device_bytes = _graph(problem, self.place)
        if problem.op is Op.SPMM:
            self._values = self.upload(problem.values).unsqueeze(-1)

    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        """Call DGL's kernel; ``dgl.ops.u_mul_e_sum`` and ``u_dot_v`` do the same, but allocate the result."""
        ops = _sparse_ops()
        read, written = ops.to_dgl_nd, ops.to_dgl_nd_for_write
        if self._op is Op.SPMM:
            out.zero_()
        if self.stored and self._op is Op.SPMM:
            ends = written(out), written(None), written(None)
            ops._CAPI_DGLKernelSpMM(self._graph, "mul", "sum", read(operands[0]), read(self._values), *ends)
        elif self.stored:
            given = read(operands[1]), read(operands[0]), written(out.unsqueeze(-1))
            ops._CAPI_DGLKernelSDDMM(self._graph, "dot", *given, _SRC, _DST)


def _graph(problem: Problem, place: str) -> tuple[Any, int]:
    """Give DGL's graph index in the one layout that its kernel reads, and its bytes; edge ids are CSR positions."""
    torch, matrix = load_torch(), problem.matrix
    layout, indices = ("csc" if problem.op is Op.SPMM else "coo"), torch.tensor(matrix.indices)
    if problem.op is Op.SPMM:
        # The CPU kernel refuses implicit edge ids; on a GPU explicit ids would cost a gather of the values in each run.
        ids = torch.arange(matrix.nnz if place == "cpu" else 0, dtype=torch.int32)
        parts = [torch.tensor(matrix.indptr), indices, ids]
    else:
        parts = [indices, torch.tensor(matrix.rows_of_entries())]
    counts = {"col": matrix.num_cols, "row": matrix.num_rows}
    graph = (
        load_dgl().heterograph({("col", "a", "row"): (layout, tuple(parts))}, counts, device=place).formats([layout])
    )
    return graph._graph, sum(part.nbytes for part in parts)


def refused(dtype: DType, kind: DeviceKind) -> str | None:
    """Say why DGL has no operators of a type on a kind of device, or what is missing; None where it has them."""
    if dtype is DType.BFLOAT16:
        return f"expected float32 or float16, found {dtype}"
    if dtype is DType.FLOAT16 and kind is DeviceKind.CPU:
        return "DGL has no float16 on the CPU"
    return missing(kind)


@cache
def missing(kind: DeviceKind) -> str | None:
    """Say which part of DGL is missing, or None."""
    if lacking := not_installed(Dgl.needs, Dgl.extra):
        return f"{lacking}, with Python 3.11"
    try:
        dgl = load_dgl()
        _sparse_ops()
    except Exception as error:  # DGL fails in many ways: missing packages, a library that was built for another torch
        return f"dgl does not import: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    if reason := torch_missing(kind):
        return reason
    if kind is DeviceKind.CUDA:
        try:
            dgl.graph(([0], [0]), device="cuda")
        except dgl.DGLError:
            return f"dgl {dgl.__version__} is a CPU build"
    return None


def load_dgl() -> Any:
    """Give the module dgl."""
    # Without the variable, the import writes a file into the user's home and says so on the terminal.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl

    return dgl


def _sparse_ops() -> Any:
    load_dgl()
    from dgl import _sparse_ops

    return _sparse_ops
