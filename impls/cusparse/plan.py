"""cuSPARSE: SpMM with every CSR algorithm, with and without preprocess, and unscaled SDDMM, row-major.

`CuSparse` is what a user gets who calls the library with its defaults; `CuSparseBest` measures every variant and keeps
the fastest. The plan owns descriptors and buffers, and preprocess is a phase of building.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.cusparse.library import ALGORITHMS
from spmark.impls.runtime.target import open_target


def _refusal(problem: Problem) -> str | None:
    if problem.scaled:
        return "cuSPARSE's SDDMM does not multiply by A"
    if problem.matrix.nnz == 0:
        return "cuSPARSE takes no matrix without non-zeros"
    return None


@dataclass(frozen=True)
class CuSparse:
    """One call of the library, defaults unless pinned."""

    name: ClassVar[str] = "cusparse"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})

    algorithm: str = "default"
    """SpMM's CSR algorithm: default, alg1, alg2 or alg3."""
    preprocess: bool = False
    """Call the library's preprocess while building."""

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"expected algorithm out of {', '.join(ALGORITHMS)}, found {self.algorithm!r}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse what the library's interface cannot say."""
        return _refusal(problem)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Describe, allocate and preprocess."""
        from spmark.impls.cusparse.gpu import CuSparsePlan

        return CuSparsePlan(problem, open_target(device), self.algorithm, self.preprocess)


@dataclass(frozen=True)
class CuSparseBest:
    """The fastest of every algorithm with and without preprocess, measured from cold caches while building."""

    name: ClassVar[str] = "cusparse_best"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})

    samples: int = 15
    """Timed launches of each variant."""

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse what the library's interface cannot say."""
        return _refusal(problem)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Build every variant on one upload, time them, keep the one with the lowest median.

        Raises
        ------
        UnsupportedError
            No variant takes the problem; carries what the library said of each.
        """
        from spmark.impls.cusparse.gpu import build_best

        return build_best(problem, open_target(device), self.samples)
