"""cuSPARSE: SpMM with every CSR algorithm, with and without preprocess, and unscaled SDDMM, row-major.

`CuSparse` calls the library with its defaults, as most users do; `CuSparseBest` measures every variant and keeps the
fastest. The plan owns descriptors and buffers, and preprocessing is a phase of building.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import KernelTemplate


class _Library:
    """What both have in common."""

    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = ()

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse problems that the library's interface cannot express."""
        if problem.scaled:
            return "cuSPARSE's SDDMM does not multiply by A"
        return None if problem.matrix.nnz else "cuSPARSE takes no matrix without non-zeros"


@dataclass(frozen=True)
class CuSparse(_Library):
    """One call of the library with its default algorithm."""

    name: ClassVar[str] = "cusparse"

    retired: ClassVar[Mapping[str, Any]] = {"algorithm": "default", "column_major": False}

    preprocess: bool = False
    """Call the library's preprocess while building."""

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Describe, allocate and preprocess."""
        from spmark.impls.cusparse.gpu import CuSparsePlan

        return CuSparsePlan(problem, open_target(device), "default", self.preprocess)


@dataclass(frozen=True)
class CuSparseBest(_Library):
    """The fastest of every algorithm with and without preprocess, measured from cold caches while building."""

    name: ClassVar[str] = "cusparse_best"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Build every variant on one upload, race them, keep the fastest.

        Raises
        ------
        UnsupportedError
            Every variant refuses the problem; the error carries the library's words for each.
        """
        from spmark.impls.cusparse.gpu import build_best

        return build_best(problem, open_target(device))
